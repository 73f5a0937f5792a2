"""tools/workload.py on some share of its input: the argument, in per cent.

Run with PYTHONMALLOC=malloc; otherwise Python's own allocator would serve the small objects.
"""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "tools"))

import workload  # noqa: E402  (found through the line above)

for name in ("PARSE_BYTES", "TOKENISE_BYTES", "COUNT_BYTES"):
    setattr(workload, name, getattr(workload, name) * int(sys.argv[1]) // 100)
workload.main()
