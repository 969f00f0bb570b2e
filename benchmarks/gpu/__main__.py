"""Runs one section:  python3 -m benchmarks.gpu NAME FILE [--dry-run]"""

from __future__ import annotations

import os
import sys
import traceback
from pathlib import Path

from benchmarks.gpu import checks, jobs, pipeline
from benchmarks.gpu.common import Report

MODULES = {"jobs": jobs, "solvers": jobs, "streamed": pipeline, "pipeline": pipeline}
"""Where sections are that aren't in `checks`."""


def main() -> int:
    name, path = sys.argv[1], Path(sys.argv[2])
    report = Report(path, dry="--dry-run" in sys.argv)
    try:
        getattr(MODULES.get(name, checks), name)(report)
    except Exception:
        report.put(error=traceback.format_exc())
        traceback.print_exc()
        return 1
    return 0


if __name__ == "__main__":
    code = main()
    sys.stderr.flush()
    os._exit(code)  # destructors of a faulted context print many errors and may hang
