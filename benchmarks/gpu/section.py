"""Runs one section:  python3 -m benchmarks.gpu.section NAME FILE [--dry-run]"""

from __future__ import annotations

import importlib
import os
import sys
import traceback
from pathlib import Path

from benchmarks.gpu.common import Report


def main() -> int:
    name, path = sys.argv[1], Path(sys.argv[2])
    report = Report(path, dry="--dry-run" in sys.argv)
    try:
        importlib.import_module(f"benchmarks.gpu.{name}").measure(report)
    except Exception:
        report.put(error=traceback.format_exc())
        traceback.print_exc()
        return 1
    return 0


if __name__ == "__main__":
    code = main()
    sys.stderr.flush()
    os._exit(code)  # destructors of a faulted context print many errors and may hang
