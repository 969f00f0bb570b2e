"""The families of cases, by name.

A family is a function of the number of seeds that returns a `Result`: a table, all figures, and
the bars they must meet. Each is in a file of its own; tests call its parts with small counts.
"""

from __future__ import annotations

from collections.abc import Callable

from benchmarks.learning import (
    calls,
    changes,
    co_runners,
    exclusion,
    kernels,
    noisy,
    tail,
    variants,
)
from benchmarks.results import Result

FAMILIES: dict[str, Callable[[int], Result]] = {
    "kernels": kernels.measure,
    "exclusion": exclusion.measure,
    "variants": variants.measure,
    "co_runners": co_runners.measure,
    "tail": tail.measure,
    "calls": calls.measure,
    "changes": changes.measure,
    "noisy": noisy.measure,
}
