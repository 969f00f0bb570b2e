"""``python -m hetsched [--profile] SCRIPT ...``: a script with its transforms divided."""

from __future__ import annotations

import argparse
import runpy
import sys
import traceback
from pathlib import Path

from hetsched.errors import UsageError
from hetsched.functions.accelerate import accelerate
from hetsched.functions.session import profile


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="python -m hetsched",
        description="Run a script or module with its transforms divided over all devices.",
        allow_abbrev=False,
    )
    parser.add_argument("--profile", action="store_true", help="print what became of the calls")
    parser.add_argument(
        "--threshold", type=int, metavar="BYTES", help="arrays of fewer aren't divided"
    )
    parser.add_argument(
        "-m", dest="module", nargs=argparse.REMAINDER, default=[], metavar="MODULE ...",
        help="a module, as python -m",
    )  # fmt: skip
    parser.add_argument("script", nargs=argparse.REMAINDER, metavar="SCRIPT ...")
    given = parser.parse_args()
    if not (given.module or given.script):
        parser.error("give a script")
    try:
        accelerate(given.threshold)
    except UsageError as error:
        parser.error(str(error))
    try:
        if given.module:
            sys.argv = [*given.module, *given.script]
            _run_module(given.module[0])
        else:
            script = given.script[0]
            if not Path(script).exists():
                sys.stderr.write(f"python -m hetsched: no such file: {script}\n")
                return 2
            sys.argv = given.script
            if not sys.flags.safe_path:
                sys.path[0] = str(Path(script).resolve().parent)
            runpy.run_path(script, run_name="__main__")
    finally:
        if given.profile:
            sys.stdout.flush()
            sys.stderr.write(profile() + "\n")
    return 0


def _run_module(name: str) -> None:
    try:
        runpy.run_module(name, run_name="__main__", alter_sys=True)
    except ImportError as error:
        where = traceback.extract_tb(error.__traceback__)[-1]
        if where.filename != runpy.run_module.__code__.co_filename:  # the module has begun
            raise
        sys.stderr.write(f"python -m hetsched: {error}\n")
        raise SystemExit(1) from None


if __name__ == "__main__":
    sys.exit(main())
