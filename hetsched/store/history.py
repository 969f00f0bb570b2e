"""What was observed of one model key, and the DeviceModel that follows from it. Pure."""

from __future__ import annotations

import itertools
from collections import Counter, deque
from collections.abc import Iterable, Iterator, Sequence

from hetsched.models import Affine, Curve, DeviceModel, PiecewiseLinear
from hetsched.models.drift import since_change
from hetsched.models.samples import CurveName, Sample
from hetsched.models.windows import WINDOW

MOST_SIZES = 32
"""Sizes of one curve that are kept, the latest; every run may bring a new one."""


class History:
    """The latest observations of one key.

    A DeviceModel that was handed out never changes: new observations lead to a new one.

    Attributes
    ----------
    runs : int
        How many runs were observed, ever.
    """

    def __init__(self, runs: int = 0, found: Iterable[Sample] = ()) -> None:
        self.runs = runs
        self._numbers = itertools.count()
        # By size: a number that rises from observation to observation, and seconds.
        self._seconds: dict[CurveName, dict[int, deque[tuple[int, float]]]] = {}
        self._built: dict[bool, DeviceModel] = {}
        self.add(found)

    def add(self, found: Iterable[Sample]) -> None:
        """Take over observations, oldest first."""
        for sample in found:
            sizes = self._seconds.setdefault(sample.curve, {})
            # Put back at the end: the order of the dict is that of the latest observations.
            window = sizes.pop(sample.units, None) or deque(maxlen=WINDOW)
            window.append((next(self._numbers), sample.seconds))
            sizes[sample.units] = window
            if len(sizes) > MOST_SIZES:
                del sizes[next(iter(sizes))]
            if sample.curve == "total" and not self.link:
                self._age(sizes)
        self._built.clear()

    def _age(self, sizes: dict[int, deque[tuple[int, float]]]) -> None:
        """Forget what a change has made worthless. With a link, totals are of different plans."""
        found = sorted(
            (number, units, seconds) for units in sizes for number, seconds in sizes[units]
        )
        gone = since_change([(units, seconds) for _, units, seconds in found])
        for _, units, _ in found[:gone]:
            sizes[units].popleft()
            if not sizes[units]:
                del sizes[units]

    @property
    def link(self) -> bool:
        """Whether copies were observed."""
        return "h2d" in self._seconds or "d2h" in self._seconds

    def model(self, link: bool | None = None) -> DeviceModel | None:
        """The model of a device with a link, or without (None: as observed); None: not known."""
        if "total" not in self._seconds:
            return None
        link = self.link if link is None else link
        if link not in self._built:
            self._built[link] = self._build(link)
        return self._built[link]

    def _build(self, link: bool) -> DeviceModel:
        total = PiecewiseLinear(self._observations("total"))
        if link:
            compute: Curve = self._affine("compute") or total
            model = DeviceModel(total, compute, self._affine("h2d"), self._affine("d2h"))
        else:
            compute = PiecewiseLinear(self._observations("compute"))
            model = DeviceModel(total, compute if len(compute.points) else total)
        for curve in (model.total, model.compute, model.h2d, model.d2h):
            if isinstance(curve, Curve):
                _ = curve.segments  # fitted now, so that planning needn't
        return model

    def _affine(self, curve: CurveName) -> Affine | None:
        found = list(self._observations(curve))
        return Affine(observations=found) if found else None

    def _observations(self, curve: CurveName) -> Iterator[tuple[float, float]]:
        for units, window in self._seconds.get(curve, {}).items():
            for _, seconds in window:
                yield float(units), seconds


def latest(found: Sequence[Sample]) -> list[Sample]:
    """The observations of one run that count, in order: the last few of each curve and size."""
    kept: list[Sample] = []
    seen: Counter[tuple[str, int]] = Counter()
    for sample in reversed(found):
        seen[sample.curve, sample.units] += 1
        if seen[sample.curve, sample.units] <= WINDOW:
            kept.append(sample)
    return kept[::-1]
