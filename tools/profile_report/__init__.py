"""The parts of tools/profile.py: reading callgrind and perf, attribution to layers, reports."""
