"""``python -m hetsched [--profile] SCRIPT ...`` and ``%load_ext hetsched``."""

from __future__ import annotations

import argparse
import runpy
import sys
from pathlib import Path
from typing import Any

from hetsched.functions.accelerate import accelerate
from hetsched.functions.profile import profile

USAGE = "a script or module that runs with its transforms divided over all devices"


def main(arguments: list[str] | None = None) -> int:
    """Run a script as Python does, accelerated."""
    parser = argparse.ArgumentParser(prog="python -m hetsched", description=f"Run {USAGE}.")
    parser.add_argument("--profile", action="store_true", help="print what became of the calls")
    parser.add_argument(
        "--threshold", type=int, metavar="BYTES", help="arrays of fewer aren't divided"
    )
    parser.add_argument("-m", dest="module", metavar="MODULE", help="a module, as python -m")
    parser.add_argument("rest", nargs=argparse.REMAINDER, metavar="SCRIPT ...")
    given = parser.parse_args(arguments)
    if not (given.module or given.rest):
        parser.error("give a script")
    accelerate(given.threshold)
    try:
        _run(given.module, given.rest)
    finally:
        if given.profile:
            sys.stdout.flush()
            sys.stderr.write(profile() + "\n")
    return 0


def _run(module: str | None, rest: list[str]) -> None:
    if module:
        sys.argv = [module, *rest]
        runpy.run_module(module, run_name="__main__", alter_sys=True)
        return
    script = rest[0]
    if not Path(script).exists():
        sys.stderr.write(f"python -m hetsched: no such file: {script}\n")
        raise SystemExit(2)
    sys.argv = rest
    sys.path[0] = str(Path(script).resolve().parent)
    runpy.run_path(script, run_name="__main__")


def load_ipython_extension(shell: Any) -> None:
    """Accelerate the transforms of a notebook."""
    accelerate()
