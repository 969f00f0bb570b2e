"""What a run's figures show: who was late, who waited, whose model was wrong. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hetsched.units import counted, format_seconds

if TYPE_CHECKING:
    from hetsched.explain.records import Account, DeviceAccount

NOTABLE = 0.05
"""Shares of time below this are as it should be. Arbitrary."""
WORTH = 0.01
"""What another split would have gained, below which it isn't worth telling. Arbitrary."""
WRONG = 0.10
"""Relative errors of prediction that are told: with less, plans are followed again."""


def findings(account: Account) -> list[str]:
    """One line each, of what was measured; none for a plan."""
    busy = [one for one in account.devices if one.timeline is not None and one.seconds]
    total = account.seconds
    if not busy or not total:
        return []
    lines = [*_ends(busy, total), *_moved(account)]
    lines += [line for one in _worst(busy) if (line := _misjudged(one))]
    losses = (_lost(field, busy, total) for field in ("copying", "between", "before"))
    lines += [line for line in losses if line]
    late = sum(one.late for one in account.devices)
    if late:
        lines.append(f"{counted(late, 'phase')} outlasted the modelled time: don't trust figures")
    return lines


def _lost(field: str, busy: list[DeviceAccount], total: float) -> str:
    """The device that lost most of its time in one way, if that is worth telling."""
    worst = max(busy, key=lambda one: getattr(one.spent, field, 0.0))
    share = getattr(worst.spent, field, 0.0) / total
    copies = worst.measured is not None and worst.measured.copies > 0
    said = {
        "copying": "waited for its copies",
        "between": "neither computed nor copied" if copies else "did nothing between its chunks",
        "before": "had not begun",
    }[field]
    return f"{worst.device} {said} for {100 * share:.0f} % of the time" if share >= NOTABLE else ""


def _ends(busy: list[DeviceAccount], total: float) -> list[str]:
    """How far apart the devices finished, if another split of whole units would have gained."""
    if len(busy) < 2:
        return []
    ends = {one.device: one.timeline.makespan for one in busy if one.timeline is not None}
    first, last = min(ends, key=lambda d: ends[d]), max(ends, key=lambda d: ends[d])
    if ends[last] < (1 + NOTABLE) * ends[first]:
        return []
    together = _together(busy)
    if together > (1 - WORTH) * total:
        return []
    return [
        f"{last} finished {100 * (ends[last] / ends[first] - 1):.0f} % after {first}; at these"
        f" speeds all could have been done after {format_seconds(together)},"
        f" {100 * (1 - together / total):.0f} % sooner"
    ]


def _together(busy: list[DeviceAccount]) -> float:
    """Seconds of the same units, whole ones, at these speeds, split as well as can be."""
    units = [one.seconds / one.share for one in busy if one.seconds and one.share]
    load = sum(one.share for one in busy)
    fluid = load / sum(1 / each for each in units)
    shares = [int(fluid / each) for each in units]
    for _ in range(load - sum(shares)):
        ends = [(share + 1) * each for share, each in zip(shares, units, strict=True)]
        shares[ends.index(min(ends))] += 1
    return max(share * each for share, each in zip(shares, units, strict=True))


def _moved(account: Account) -> list[str]:
    """Chunks that ran elsewhere than planned."""
    if account.state != "done":
        return []
    more = [one for one in account.devices if one.share > one.planned]
    return [
        f"{one.device} did {counted(one.share - one.planned, 'unit')} that others had been given"
        for one in more
    ]


def _worst(busy: list[DeviceAccount]) -> list[DeviceAccount]:
    """Of devices whose names differ by a number only, the one that was predicted worst."""
    found: dict[str, DeviceAccount] = {}
    for one in busy:
        stem = one.device.rstrip("0123456789")
        if stem not in found or abs(_error(one)) > abs(_error(found[stem])):
            found[stem] = one
    return list(found.values())


def _error(one: DeviceAccount) -> float:
    """Relative error of prediction; 0 for a share that became another."""
    if not one.predicted_seconds or not one.seconds or one.share != one.planned:
        return 0.0
    return one.seconds / one.predicted_seconds - 1


def _misjudged(one: DeviceAccount) -> str:
    error = _error(one)
    if abs(error) < WRONG:
        return ""
    runs = "" if one.runs is None else f"; its model knew {counted(one.runs, 'run')}"
    much = "longer" if error > 0 else "less"
    return f"{one.device} took {100 * abs(error):.0f} % {much} than predicted{runs}"
