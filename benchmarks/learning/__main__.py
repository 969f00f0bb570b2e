"""Runs all families of learning cases, or those named, in virtual time.

python -m benchmarks.learning [--seeds N] [NAME ...]
"""

from __future__ import annotations

import functools
import sys

from benchmarks import command
from benchmarks.learning.cases import FAMILIES

SEEDS = 10


def main(arguments: list[str] | None = None) -> int:
    parser = command.parser("benchmarks.learning", FAMILIES)
    parser.add_argument("--seeds", type=int, default=SEEDS, help=f"default {SEEDS}")
    given = parser.parse_args(arguments)
    names = command.chosen(parser, given.names, FAMILIES)
    if given.seeds < 1:
        parser.error(f"--seeds: {given.seeds}; it must be at least 1")
    families = {name: functools.partial(FAMILIES[name], given.seeds) for name in names}
    return command.run_all(families, None)


if __name__ == "__main__":
    sys.exit(main())
