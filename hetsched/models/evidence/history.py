"""What was observed of one model key, and the DeviceModel that follows from it. Pure."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import get_args

from hetsched.models import Affine, Curve, DeviceModel, PiecewiseLinear
from hetsched.models.evidence.confidence import NARROW, middle
from hetsched.models.evidence.drift import BELIEVED, Change
from hetsched.models.evidence.duplex import LEAST
from hetsched.models.evidence.observations import Windows
from hetsched.models.evidence.samples import CurveName, Sample

MOST_SIZES = 32
"""Sizes of one curve that are kept, the latest; every run may bring a new one."""
LINKED = 5
"""Totals of one size that are kept of a device with a link: they are of different plans."""
NEAR = 1.5
"""Sizes that differ by less tell by their seconds a unit whether speed has changed. Arbitrary."""

Curves = dict[CurveName, Windows]


class History:
    """The latest observations of one key.

    A DeviceModel that was handed out never changes: new observations lead to a new one.

    Runs that were contended (`Sample.contended`) are kept apart. While there are others, they
    teach nothing about speed; but when the last `BELIEVED` runs were all contended, whoever
    disturbs them stays: the model is as much slower as they were, until a run is uncontended.

    Parameters
    ----------
    runs : int
    found : iterable of Sample
        Oldest first, that were looked at before: no change is looked for.

    Attributes
    ----------
    runs : int
        How many runs were observed, ever.
    change : Change or None
        What the last run made believed: that speed has changed, and by how much.
    changes : dict of CurveName to float
        The same of each curve: how many times as long as before.
    rewritten : bool
        Observations that were handed in before aren't `samples` any more.
    """

    def __init__(self, runs: int = 0, found: Iterable[Sample] = ()) -> None:
        self.runs = runs
        self.change: Change | None = None
        self.changes: dict[CurveName, float] = {}
        self.rewritten = False
        self._clean: Curves = {}
        self._contended: Curves = {}
        self._load: deque[float] = deque(maxlen=BELIEVED)
        self._built: dict[bool, DeviceModel] = {}
        for sample in found:
            self._windows(self._clean, sample.curve).restore(sample.units, sample.seconds)

    def add(self, found: Sequence[Sample]) -> None:
        """Take over what one run showed."""
        self.change = None
        self.changes = {}
        contended = any(sample.contended for sample in found)
        if contended and "total" in self._clean:
            self._load.append(self._slowdown(found))
        elif not contended:
            self._load.clear()
        if not contended and self._known is not self._clean:
            self.rewritten = True  # contended runs were all there was
        curves = self._contended if contended else self._clean
        for curve, observations in _by_curve(found).items():
            windows = self._windows(curves, curve)
            windows.add_run(observations)
            if curve in ("total", "compute"):
                self.change = windows.change or self.change
            if windows.change is not None:
                self.rewritten = True
                self.changes[curve] = windows.change.factor
        self._built.clear()

    def follow(self, changes: Mapping[CurveName, float]) -> None:
        """Take over `changes` of another history of the same device: `Windows.follow`."""
        for curve, factor in changes.items():
            if curve in self._known:
                self._known[curve].follow(factor)
                self.rewritten = True
                self._built.clear()

    @property
    def link(self) -> bool:
        """Whether copies were observed."""
        return "h2d" in self._known or "d2h" in self._known

    @property
    def load(self) -> float:
        """How many times as long runs take at present because they are contended; 1: they aren't.

        Only where it is also known how long they take uncontended.
        """
        return middle(self._load) if len(self._load) == BELIEVED else 1.0

    def samples(self) -> list[Sample]:
        """All that counts: a History that is made of it knows the same of uncontended runs."""
        return [
            Sample(curve, round(units), seconds)
            for curve, windows in self._known.items()
            for units, seconds in windows.observations()
        ]

    def counts(self, found: Sequence[Sample]) -> bool:
        """Whether `found` is to be kept: contended runs only where there are no others, or few.

        A process that runs one job must not take the first contended run for the truth for ever.
        """
        few = self._known is self._contended or self.runs <= BELIEVED
        return few or not any(sample.contended for sample in found)

    def model(self, link: bool | None = None) -> DeviceModel | None:
        """The model of a device with a link, or without (None: as observed); None: not known."""
        if "total" not in self._known:
            return None
        link = self.link if link is None else link
        if link not in self._built:
            self._built[link] = self._build(link)
        return self._built[link]

    @property
    def _known(self) -> Curves:
        """Contended runs count where there are no others."""
        if "total" in self._clean or not self._contended:
            return self._clean
        return self._contended

    def _windows(self, curves: Curves, curve: CurveName) -> Windows:
        if curve not in curves:
            linked = curve == "total" and ("h2d" in curves or "d2h" in curves)
            curves[curve] = (
                Windows(most_sizes=MOST_SIZES, window=LINKED, watched=False)
                if linked
                else Windows(most_sizes=MOST_SIZES, near=NEAR)
            )
        return curves[curve]

    def _slowdown(self, found: Sequence[Sample]) -> float:
        """What a contended run took over what an uncontended one would have."""
        model = self.model()
        if model is None:
            return 1.0
        name, curve = ("compute", model.compute) if self.link else ("total", model.total)
        ratios = [s.seconds / float(curve.time(s.units)) for s in found if s.curve == name]
        return max(middle(ratios), 1.0) if ratios else 1.0

    def _build(self, link: bool) -> DeviceModel:
        total = PiecewiseLinear.of(self._evidence("total"))
        if link:
            compute: Curve = self._affine("compute") or total
            h2d, d2h = self._affine("h2d"), self._affine("d2h")
            duplex = self._kept("h2d_beside", h2d), self._kept("d2h_beside", d2h)
            overhead = self._affine("host_overhead")
            model = DeviceModel(total, compute, h2d, d2h, duplex=duplex, host_overhead=overhead)
        else:
            known = "compute" in self._known
            compute = PiecewiseLinear.of(self._evidence("compute")) if known else total
            model = DeviceModel(total, compute)
        # Fitted now, so that planning needn't; what a core's chunks take plays no part in that.
        for curve in (model.total, model.compute, model.h2d, model.d2h) if link else (total,):
            if isinstance(curve, Curve):
                _ = curve.segments
        return model

    def _affine(self, curve: CurveName) -> Affine | None:
        return Affine.of(self._evidence(curve)) if curve in self._known else None

    def _kept(self, curve: CurveName, alone: Affine | None) -> float:
        """The share of its pace that a direction keeps while the other one is busy."""
        if alone is None or curve not in self._known:
            return 1.0
        shares = [float(alone.time(size)) / time for size, time, _ in self._known[curve].latest()]
        share = middle(shares)
        return max(share, LEAST) if share < 1 - NARROW else 1.0

    def _evidence(self, curve: CurveName) -> Windows:
        """Copies aren't what a busy core or a hot GPU slows down."""
        windows = self._known[curve]
        slowed = curve in ("total", "compute") and self.load != 1.0
        return windows.scaled(self.load) if slowed else windows


def _by_curve(found: Sequence[Sample]) -> dict[CurveName, list[tuple[float, float]]]:
    """One observation a curve and size of one run: its repeats within the run hang together."""
    repeats: dict[CurveName, dict[int, list[float]]] = {}
    for sample in found:
        repeats.setdefault(sample.curve, {}).setdefault(sample.units, []).append(sample.seconds)
    return {
        curve: [(float(units), middle(seconds)) for units, seconds in repeats[curve].items()]
        for curve in get_args(CurveName)[::-1]
        if curve in repeats
    }


def runs_of(found: Iterable[Sample]) -> Iterator[list[Sample]]:
    """Observations of several runs, each as `latest` returns them, run by run."""
    run: list[Sample] = []
    for sample in found:
        again = any((sample.curve, sample.units) == (one.curve, one.units) for one in run)
        if run and (again or (run[-1].curve == "total" != sample.curve)):
            yield run
            run = []
        run.append(sample)
    if run:
        yield run


def latest(found: Sequence[Sample]) -> list[Sample]:
    """The observations of one run that count: the median of each curve and size."""
    contended = any(sample.contended for sample in found)
    return [
        Sample(curve, round(units), seconds, contended)
        for curve, observations in _by_curve(found).items()
        for units, seconds in observations
    ]
