"""From what is known of devices to shares: plans are weighed, but few of them are made.

Each device with a link starts as a closed form; the split found with that is where plans are made,
and the curves go through what these take. Again, until the split stays or gains nothing more.
(Ours; the partitioner is that of Lastovetsky & Reddy.)
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import lru_cache

from hetsched.models import Curve, SpeedFunction
from hetsched.partition import geometric
from hetsched.planner.device_totals import Refined

ROUNDS = 6
"""Splits for which plans are made, at most."""
CLOSE = 2e-4
"""Relative gain that is not worth another round of plans. Arbitrary."""
MOST_KEPT = 32
"""Splits that are kept, the latest."""


class Device:
    """What a device takes for a share.

    Parameters
    ----------
    curve : SpeedFunction or None
    refined : Refined, optional
        Instead: of a device with a link.
    """

    def __init__(self, curve: SpeedFunction | None, refined: Refined | None = None) -> None:
        self._curve = curve
        self.refined = refined

    @property
    def curve(self) -> SpeedFunction:
        """Seconds of a share, as far as it was looked at."""
        if self._curve is None:
            assert self.refined is not None, "one of them is given"
            self._curve = self.refined.total()
        return self._curve

    def look(self, share: int) -> None:
        """Make the curve exact at `share` units."""
        if self.refined is not None and share:
            self.refined.look(share)
            self._curve = None

    def become(self, curve: SpeedFunction) -> None:
        """Take over what an equal device has found out."""
        self._curve = curve

    @property
    def key(self) -> object | None:
        """What its curve follows from; None: that isn't known, or may change."""
        if self.refined is not None:
            return self.refined.key
        curve = self._curve
        return curve.segments if isinstance(curve, Curve) and not curve.falls else None


def divide(load: int, devices: Sequence[Device]) -> tuple[int, ...]:
    """Shares that sum to `load`, such that all finish as soon as possible.

    Those of devices with a link are looked at, so that their curves are exact there.

    Parameters
    ----------
    load : int, units, >= 1
    devices : sequence of Device
        At least one.
    """
    keys = tuple(one.key for one in devices)
    if None in keys or all(one.refined is None for one in devices):
        return _divided(load, devices)
    shares, curves = _kept(_Question(load, keys, devices))
    for one, curve in zip(devices, curves, strict=True):
        one.become(curve)
    return shares


@dataclass(frozen=True)
class _Question:
    """A load and devices, by value."""

    load: int
    keys: tuple[object, ...]
    devices: Sequence[Device] = field(compare=False)


@lru_cache(maxsize=MOST_KEPT)
def _kept(question: _Question) -> tuple[tuple[int, ...], tuple[SpeedFunction, ...]]:
    shares = _divided(question.load, question.devices)
    return shares, tuple(one.curve for one in question.devices)


def _divided(load: int, devices: Sequence[Device]) -> tuple[int, ...]:
    if load == 1:
        return _fastest(devices)
    tried: dict[tuple[int, ...], float] = {}
    for _ in range(ROUNDS):
        found = geometric([one.curve for one in devices], load)
        if all(one.refined is None for one in devices):
            return found.shares
        if found.shares in tried:
            break
        if tried and found.makespan > (1 - CLOSE) * min(tried.values()):
            break
        for one, share in zip(devices, found.shares, strict=True):
            one.look(share)
        tried[found.shares] = makespan(devices, found.shares)
    return min(tried, key=lambda shares: tried[shares])


def _fastest(devices: Sequence[Device]) -> tuple[int, ...]:
    """A single unit goes to the device that is done first."""
    times = [float(one.curve.time(1.0)) for one in devices]
    best = times.index(min(times))
    shares = tuple(int(index == best) for index in range(len(devices)))
    devices[best].look(1)
    return shares


def makespan(devices: Sequence[Device], shares: Sequence[int]) -> float:
    """Seconds until the last device is done."""
    return max(
        float(one.curve.time(share)) for one, share in zip(devices, shares, strict=True) if share
    )
