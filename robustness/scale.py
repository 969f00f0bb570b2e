"""How much a scenario does: in `make test`, in `make robust` or in `make robust-long`."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Literal, TypeVar

Number = TypeVar("Number", int, float)
Part = TypeVar("Part")
Outcome = TypeVar("Outcome")

LANES = 4
"""Parts of a long run at once: four daemons that mostly wait don't disturb each other."""

SHORT_DEADLINES = """
[deadlines]
start = "5s"
step = "20s"
chunk = "2s"
stop = "12s"
"""
"""So that a stopped device process is found in seconds. Everything else keeps its default."""


@dataclass(frozen=True)
class Scale:
    """The scale of one run; `seed` seeds everything random."""

    name: Literal["test", "short", "long"]
    seed: int = 0

    def of(self, test: Number, short: Number, long: Number) -> Number:
        """Return the count or the seconds for this scale."""
        return {"test": test, "short": short, "long": long}[self.name]

    def map(self, function: Callable[[Part], Outcome], parts: Iterable[Part]) -> list[Outcome]:
        """Return ``function(part)`` for each part, in order; in long runs some are side by side.

        For parts that mostly wait, each with a daemon of its own; not where speed is measured.
        """
        with ThreadPoolExecutor(self.of(1, 1, LANES)) as pool:
            return list(pool.map(function, parts))

    @property
    def deadlines(self) -> str:
        """The `[deadlines]` table of the configuration: the defaults only in the long run."""
        return "" if self.name == "long" else SHORT_DEADLINES


TEST, SHORT, LONG = Scale("test"), Scale("short"), Scale("long")
