"""Medians, and ratios of pairs with their spread."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Sample:
    """Seconds of the repetitions of one operation."""

    seconds: tuple[float, ...]

    @property
    def median(self) -> float:
        return statistics.median(self.seconds)

    @property
    def least(self) -> float:
        return min(self.seconds)

    def text(self) -> str:
        """ "12.3 (11.9)": median and least, milliseconds."""
        return f"{milliseconds(self.median)} ({milliseconds(self.least)})"


@dataclass(frozen=True)
class Ratio:
    """Median and quartiles of the ratios of pairs measured side by side."""

    median: float
    low: float
    high: float

    def text(self) -> str:
        return f"{self.median:.2f} ({self.low:.2f} to {self.high:.2f})"


def ratio(theirs: Sequence[float], ours: Sequence[float]) -> Ratio:
    """Return how many times faster `ours` is than `theirs`, pair by pair."""
    pairs = sorted(their / our for their, our in zip(theirs, ours, strict=True))
    low, middle, high = quartiles(pairs)
    return Ratio(middle, low, high)


def quartiles(values: Sequence[float]) -> tuple[float, float, float]:
    if len(values) < 2:
        return values[0], values[0], values[0]
    low, middle, high = statistics.quantiles(values, n=4, method="inclusive")
    return low, middle, high


def milliseconds(seconds: float) -> str:
    value = seconds * 1e3
    return f"{value:.0f}" if value >= 100 else f"{value:.3g}"
