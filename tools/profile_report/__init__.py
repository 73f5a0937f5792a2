"""What tools/profile.py is made of: reading callgrind and perf, attribution to layers, reports."""
