"""Families of cases in which simulated machines are planned, most of them learnt from nothing.

A family is a function of the number of seeds, and yields a `Verdict` for each case. All is virtual
time: nothing is computed.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean


@dataclass(frozen=True)
class Verdict:
    """The values of a case over seeds and runs, and what their mean and largest may be."""

    case: str
    values: Sequence[float]
    max_mean: float | None = None
    max_worst: float | None = None

    @property
    def holds(self) -> bool:
        return (self.max_mean is None or fmean(self.values) <= self.max_mean) and (
            self.max_worst is None or max(self.values) <= self.max_worst
        )

    def cells(self) -> tuple[str, ...]:
        limits = (
            "" if limit is None else f"{limit:g}" for limit in (self.max_mean, self.max_worst)
        )
        figures = f"{fmean(self.values):.4f}", f"{max(self.values):.4f}"
        return (self.case, *figures, *limits, "" if self.holds else "**missed**")
