"""Runs all families of learning cases, or those named; exits with 1 if a bar is missed."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Iterable

from benchmarks.learning import Verdict
from benchmarks.learning.co_runners import co_runners
from benchmarks.learning.cores import calls, changes, exclusion, noisy, tail
from benchmarks.learning.kernels import kernels
from benchmarks.learning.plans import devices, machines
from benchmarks.learning.variants import variants

FAMILIES: dict[str, Callable[[int], Iterable[Verdict]]] = {
    "kernels": kernels,
    "exclusion": exclusion,
    "variants": variants,
    "co_runners": co_runners,
    "tail": tail,
    "calls": calls,
    "changes": changes,
    "noisy": noisy,
    "devices": devices,
    "machines": machines,
}


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.learning")
    parser.add_argument("names", nargs="*", metavar="NAME", help=", ".join(FAMILIES))
    parser.add_argument("--seeds", type=int, default=10)
    given = parser.parse_args(arguments)
    if unknown := set(given.names) - set(FAMILIES):
        parser.error(f"unknown: {', '.join(unknown)}; choose from: {', '.join(FAMILIES)}")
    if given.seeds < 1:
        parser.error(f"--seeds: {given.seeds}; it must be at least 1")
    is_missed = False
    print("| case | mean | worst | mean at most | worst at most | |\n|---|---|---|---|---|---|")
    for name in given.names or FAMILIES:
        for verdict in FAMILIES[name](given.seeds):
            is_missed = is_missed or not verdict.holds
            print(f"| {name}: {' | '.join(verdict.cells())} |", flush=True)
    return int(is_missed)


if __name__ == "__main__":
    sys.exit(main())
