"""Groups of equal devices, whose names differ only by their numbers."""

from __future__ import annotations

from collections.abc import Sequence

MAX_LISTED_DEVICES = 2
"""Maximum size of a group whose devices are named individually."""


def groups_of(names: Sequence[str]) -> list[list[str]]:
    """Return ["cpu0", "gpu0", "cpu1"] as [["cpu0", "cpu1"], ["gpu0"]]."""
    groups: dict[str, list[str]] = {}
    for name in names:
        groups.setdefault(_stem(name), []).append(name)
    return list(groups.values())


def group_name(names: Sequence[str]) -> str:
    """Return "cpu0 and cpu1", or for more devices "cpu0 to cpu7" or "5 of cpu0 to cpu7"."""
    if len(names) <= MAX_LISTED_DEVICES:
        return " and ".join(names)
    span = f"{names[0]} to {names[-1]}"
    first, last = (name.removeprefix(_stem(name)) for name in (names[0], names[-1]))
    is_range = first and last and int(last) - int(first) + 1 == len(names)
    return span if is_range else f"{len(names)} of {span}"


def _stem(name: str) -> str:
    return name.rstrip("0123456789")
