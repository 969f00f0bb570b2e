"""The observations of one model key, and the DeviceModel that follows from them. Pure."""

from __future__ import annotations

from collections import deque
from collections.abc import Container, Iterable, Mapping, Sequence

from hetsched.models import DeviceModel, PiecewiseLinear
from hetsched.models.call_cost import WHOLE_SHARES, CallCosts
from hetsched.models.contention import RECENT_RUNS, Contention
from hetsched.models.curve_windows import Curves, pairs_and_chunks, windows_of
from hetsched.models.evidence.change_detector import MAX_RUNS, SpeedChange
from hetsched.models.evidence.confidence import robust_median
from hetsched.models.evidence.observations import ObservationWindows
from hetsched.models.evidence.run_medians import (
    RunMedian,
    is_ratio,
    medians_by_curve,
    split_runs,
    warm_samples,
)
from hetsched.models.evidence.samples import CurveName, Sample
from hetsched.models.model_building import core_model, linked_model
from hetsched.models.variation import RunVariation

REPLAYED_RUNS = 6
"""Last stored runs that are checked for a change of speed again: a process that runs one job sees
a change only together with runs of processes before it. So many show a change by a fifth."""
MAX_RATIO = 1e6
"""Ratio of two times beyond which it says no more. Arbitrary."""

BASE_BYTES = 4000
"""Memory of a history without observations, and of its models. Estimate."""


class History:
    """The latest observations of one key.

    A returned DeviceModel never changes; new observations produce a new model.

    Contended runs (`Sample.contended`) are kept separately and don't count as observations of
    speed if there are uncontended ones. But the model is slowed down by contention that lasts
    (`hetsched.models.contention`).

    Parameters
    ----------
    runs : int
    samples : iterable of Sample
        Oldest first, as stored by other processes. The last runs are checked for a change of
        speed.

    Attributes
    ----------
    runs : int
        All runs ever observed.
    change : SpeedChange or None
        The change of the device's speed that the last run confirmed.
    changes : dict of CurveName to float
        New over old time of each changed curve.
    rewritten : bool
        Earlier observations are no longer among `samples`.
    """

    def __init__(self, runs: int = 0, samples: Iterable[Sample] = ()) -> None:
        self.runs = runs
        self.change: SpeedChange | None = None
        self.changes: dict[CurveName, float] = {}
        self.rewritten = False
        self._clean: Curves = {}
        self._contended: Curves = {}
        self._contention = Contention()
        self._last_runs: deque[frozenset[CurveName]] = deque(maxlen=MAX_RUNS)
        """The curves that the last runs observed."""
        self._models: dict[bool, DeviceModel] = {}
        self._variation = RunVariation()
        self._calls = CallCosts()
        self._expected: DeviceModel | None = None
        """The last fitted model."""
        stored = list(split_runs(samples))
        for run in stored[:-REPLAYED_RUNS]:
            self._restore(run, detects_changes=False)
        for run in stored[-REPLAYED_RUNS:]:
            self._restore(run, detects_changes=True)
        self.change = None
        self.changes = {}
        self._calls.assume_excluded()

    def _restore(self, samples: Sequence[Sample], *, detects_changes: bool) -> None:
        """Add a run that another process has observed and stored."""
        evidence = self._add_ratios(samples)
        curves = self._contended if any(s.contended for s in evidence) else self._clean
        medians = medians_by_curve(evidence)
        if detects_changes:
            self._add_medians(curves, medians)
            return
        self._last_runs.append(frozenset(medians))
        for curve, observations in medians.items():
            pairs, chunks = pairs_and_chunks(observations)
            self._windows(curves, curve).restore_run(pairs, chunks)

    def without_calls(self, samples: Sequence[Sample]) -> list[Sample]:
        """Return the next run's observations, its whole shares as they would be without calls.

        If the run changes what is known of the cost of a call, times of earlier whole shares are
        scaled to this run's: their calls had other sizes. So had those whose variation is known.
        """
        if self._expected is None:
            self.model()
        without, is_changed = self._calls.exclude(samples)
        total = next((sample for sample in without if sample.curve == "total"), None)
        # Several runs may be learnt from at once: a model for each would take most of the time.
        model = self.model() if is_changed else None
        if model is not None and total is not None:
            factor = total.seconds / float(model.total.time(total.units))
            factor *= 1.0 if total.contended else self.contention
            for curves in (self._clean, self._contended):
                for curve in WHOLE_SHARES & curves.keys():
                    curves[curve] = curves[curve].scaled(factor)
            self._variation = RunVariation()
            self.rewritten = True
            self._models.clear()
            self._expected = None
        return without

    def with_ratios(self, samples: Sequence[Sample]) -> list[Sample]:
        """Return the observations of the next run with its ratios.

        These are its measured over its expected time, and its slowdown by contention, if there is
        any in this run or there was in recent ones.
        """
        ratios: list[Sample] = []
        totals = [sample for sample in samples if sample.curve == "total"]
        if self._expected is not None and totals:
            whole = max(totals, key=lambda sample: sample.units)
            ratio = whole.seconds / float(self._expected.total.time(whole.units))
            ratio = min(max(ratio, 1 / MAX_RATIO), MAX_RATIO)
            ratios.append(Sample("variation", 1, ratio))
        is_contended = any(sample.contended for sample in samples)
        if "total" in self._clean and (is_contended or self._contention.is_recent):
            slowdown = self._slowdown(samples) if is_contended else 1.0
            slowdown = min(slowdown, MAX_RATIO)
            ratios.append(Sample("contention", 1, slowdown))
        return [*ratios, *samples]

    def add(self, samples: Sequence[Sample]) -> None:
        """Add the observations of one run, as `with_ratios` returns them."""
        evidence = self._add_ratios(samples)
        self.change = None
        self.changes = {}
        self._models.clear()
        if not evidence:
            return  # a contended run of another process, which has stored its ratios only
        contended = any(sample.contended for sample in evidence)
        was_contended = self._curves is self._contended
        curves = self._contended if contended else self._clean
        self._add_medians(curves, medians_by_curve(evidence))
        if was_contended and self._curves is self._clean:
            self.rewritten = True  # all earlier runs were contended
            self._compare_contended_runs()

    def _add_ratios(self, samples: Sequence[Sample]) -> list[Sample]:
        """Add the ratios of a run; return its other samples."""
        for sample in samples:
            if sample.curve == "variation":
                self._variation.add(sample.seconds)
            elif sample.curve == "contention":
                self._contention.add(sample.seconds)
            elif sample.curve == "call":
                self._calls.add(sample.seconds)
        return [sample for sample in samples if not is_ratio(sample)]

    def _compare_contended_runs(self) -> None:
        """Judge earlier runs, all of them contended, by the first one that wasn't."""
        if "total" not in self._contended:
            return
        clean = PiecewiseLinear.of(self._clean["total"])
        earlier = self._contended["total"].observations()[1 - RECENT_RUNS :]
        for units, seconds in earlier:
            self._contention.add(seconds / float(clean.time(units)))
        self._contention.add(1.0)

    def _add_medians(
        self, curves: Curves, medians: Mapping[CurveName, Sequence[RunMedian]]
    ) -> None:
        self._last_runs.append(frozenset(medians))
        changed: set[CurveName] = set()
        for curve, observations in medians.items():
            windows = self._windows(curves, curve)
            windows.add_run(*pairs_and_chunks(observations))
            if curve in ("total", "compute"):
                self.change = windows.change or self.change
            if windows.change is None:
                continue
            self.rewritten = True
            changed.add(curve)
            if curve != "cold":
                self.changes[curve] = windows.change.factor
        if "total" in self.changes and curves["total"].change is not None:
            self._apply_total_change(curves, curves["total"].change, changed, medians)

    def _apply_total_change(
        self,
        curves: Curves,
        change: SpeedChange,
        changed: Container[CurveName],
        observed: Container[CurveName],
    ) -> None:
        """Apply a change of whole shares to curves that may not show it themselves.

        Runs in fresh processes have no times of chunks; others say nothing about fresh ones.
        """
        since = [*self._last_runs][-change.runs :]
        dependent: set[CurveName] = {"cold"} if "compute" in observed else {"cold", "compute"}
        for curve in dependent:
            if curve in curves and curve not in changed:
                recent_runs = sum(curve in run for run in since)
                curves[curve].apply_change(change.factor, recent_runs)
                if curve == "compute":
                    self.changes[curve] = change.factor

    def as_warm(self, samples: Sequence[Sample]) -> list[Sample]:
        """Return a run's samples, with its total as a warm process would have needed it."""
        fresh = next((sample for sample in samples if sample.curve == "cold"), None)
        if fresh is None or self.link:
            return list(samples)
        return warm_samples(samples, fresh, self._clean.get("total"), self._clean.get("cold"))

    def apply_changes(self, changes: Mapping[CurveName, float]) -> None:
        """Apply the changes detected in another history of the same device."""
        if "total" in changes:
            changes = {**changes, "cold": changes["total"]}
        for curve, factor in changes.items():
            if curve in self._curves:
                self._curves[curve].apply_change(factor)
                self.rewritten = True
                self._models.clear()

    @property
    def link(self) -> bool:
        """Whether copies were observed."""
        return "h2d" in self._curves or "d2h" in self._curves

    @property
    def contention(self) -> float:
        """The present slowdown by contention, a ratio of times; 1: none."""
        return self._contention.factor

    @property
    def nbytes(self) -> int:
        """Estimated bytes, with the fitted models."""
        windows = [*self._clean.values(), *self._contended.values()]
        return BASE_BYTES + sum(window.nbytes for window in windows)

    def samples(self) -> list[Sample]:
        """Return all observations in use; a History made of them has the same uncontended runs."""
        return [
            *(Sample("call", 1, units) for units in self._calls),
            *(Sample("variation", 1, ratio) for ratio in self._variation),
            *(Sample("contention", 1, slowdown) for slowdown in self._contention),
            *(
                Sample(curve, round(units), seconds, self._curves is self._contended, chunks)
                for curve, windows in self._curves.items()
                for units, seconds, chunks in windows.run_medians()
            ),
        ]

    def stored(self, samples: Sequence[Sample]) -> list[Sample]:
        """Return those of a run's observations that other processes need.

        Of contended runs these are only the ratios, once there are uncontended ones.
        """
        if self._curves is self._contended or not any(sample.contended for sample in samples):
            return list(samples)
        return [sample for sample in samples if is_ratio(sample)]

    def model(self, link: bool | None = None) -> DeviceModel | None:
        """Return the model, with a link or without (None: as observed); None without samples."""
        if "total" not in self._curves:
            return None
        link = self.link if link is None else link
        if link not in self._models:
            self._models[link] = self._expected = self._build(link)
        return self._models[link]

    @property
    def _curves(self) -> Curves:
        """Return the curves in use: those of contended runs if there are no others."""
        if "total" in self._clean or not self._contended:
            return self._clean
        return self._contended

    def _windows(self, curves: Curves, curve: CurveName) -> ObservationWindows:
        return windows_of(curves, curve, is_contended=curves is self._contended)

    def _slowdown(self, samples: Sequence[Sample]) -> float:
        """Return the ratio of a contended run's times to those without contention."""
        model = self.model()
        if model is None:
            return 1.0
        name, curve = ("compute", model.compute) if self.link else ("total", model.total)
        ratios = [s.seconds / float(curve.time(s.units)) for s in samples if s.curve == name]
        # The model's times contain the present contention.
        return max(robust_median(ratios) * self.contention, 1.0) if ratios else 1.0

    def _build(self, link: bool) -> DeviceModel:
        if link:
            return linked_model(self._curves, self.contention)
        return core_model(
            self._curves,
            contention=self.contention,
            variation=self._variation.deviation,
            calls=self._calls,
        )
