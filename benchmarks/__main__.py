"""Measures and saves: python -m benchmarks [NAME ...]; see README.md."""

from __future__ import annotations

import argparse
import importlib
import sys
import tempfile
import time
import traceback
from types import ModuleType

from benchmarks import saved
from benchmarks.serving import places

NAMES = (
    "warm_job", "solvers", "overhead", "file_job", "first_use", "planning_time", "functions",
    "hosts",
)  # fmt: skip


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks")
    parser.add_argument("names", nargs="*", metavar="NAME", help=", ".join(NAMES))
    parser.add_argument("--case", action="append", default=[], help="a part of its name")
    parser.add_argument("--rounds", type=int)
    how = parser.add_mutually_exclusive_group()
    how.add_argument("--quick", action="store_true", help="one round of small cases, unsaved")
    how.add_argument("--unsaved", action="store_true")
    how.add_argument("--show", action="store_true", help="print what is saved")
    given = parser.parse_args()
    if unknown := set(given.names) - set(NAMES):
        parser.error(f"unknown: {', '.join(unknown)}; choose from: {', '.join(NAMES)}")
    failed = []
    with tempfile.TemporaryDirectory(prefix="hs-") as folder, places(folder):
        for name in given.names or NAMES:
            try:
                run(importlib.import_module(f"benchmarks.{name}"), name, given)
            except Exception:  # the other benchmarks go on
                traceback.print_exc()
                failed.append(name)
    if failed:
        print(f"failed: {', '.join(failed)}")
    return 1 if failed else 0


def run(module: ModuleType, name: str, given: argparse.Namespace) -> None:
    """Run one benchmark, or show it."""
    path = saved.path_of(name)
    print(f"\n## {module.TITLE}\n", flush=True)
    if given.show:
        print(saved.text(module, saved.load(path)))
        return
    found = {}
    for case in chosen(module, given):
        start = time.monotonic()
        print(f"  {case}", flush=True)
        measured = module.measure(case, given.rounds or (1 if given.quick else module.ROUNDS))
        now = {benchmark.get_name(): benchmark for benchmark in measured}
        found |= now
        print(f"  {' | '.join(module.row(case, *saved.of_case(now, case)))}", end="")
        print(f" ({time.monotonic() - start:.0f} s)", flush=True)
        if not (given.quick or given.unsaved):
            saved.save(path, measured)
    print(f"\n{saved.text(module, found)}\n", flush=True)


def chosen(module: ModuleType, given: argparse.Namespace) -> list[str]:
    """Return the cases that have one of the words; a word that none has is a case itself."""
    known = module.QUICK if given.quick else module.CASES
    cases = [c for c in known if not given.case or any(word in c for word in given.case)]
    return cases + [word for word in given.case if not any(word in case for case in cases)]


if __name__ == "__main__":
    sys.exit(main())
