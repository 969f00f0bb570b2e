"""Runs all families of learning cases, or those named, in virtual time.

python -m benchmarks.learning [--seeds N] [NAME ...]
"""

from __future__ import annotations

import argparse
import sys

from benchmarks import results
from benchmarks.learning.cases import FAMILIES

SEEDS = 10
"""Default number of seeds; results of fewer aren't saved."""


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.learning")
    parser.add_argument("names", nargs="*", metavar="NAME", help=", ".join(FAMILIES))
    parser.add_argument(
        "--seeds", type=int, default=SEEDS, help=f"default {SEEDS}; fewer: unsaved"
    )
    given = parser.parse_args(arguments)
    if unknown := set(given.names) - set(FAMILIES):
        parser.error(f"no family {', '.join(sorted(unknown))}; choose from: {', '.join(FAMILIES)}")
    if given.seeds < 1:
        parser.error(f"--seeds: {given.seeds}; it must be at least 1")
    missed = 0
    for name in given.names or FAMILIES:
        print(f"{name}:", flush=True)
        result = FAMILIES[name](given.seeds)
        missed += sum(not bar.holds for bar in result.bars)
        print(f"\n{result.text()}", flush=True)
        if given.seeds >= SEEDS:
            print(f"saved {results.save(result)}", flush=True)
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
