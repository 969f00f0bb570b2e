"""Tables in Markdown, and figures with the limits that they must meet."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Bar:
    """A figure that must be at most `limit`."""

    what: str
    value: float
    limit: float

    @property
    def holds(self) -> bool:
        return self.value <= self.limit

    def text(self) -> str:
        verdict = "holds" if self.holds else "**missed**"
        return f"{self.what}: {self.value:.3g}, at most {self.limit:g}: {verdict}"


def table(columns: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = [columns, ["---"] * len(columns), *rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)
