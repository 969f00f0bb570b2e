"""Measurements on request: which size to measure next.

A measuring job gives every device the same number of units in one chunk: its copy in, kernel and
copy out don't overlap, so each phase is measured at exactly that size. All devices run at once, as
in other jobs: cores that share memory are slower then, and planning needs that speed. Sizes
alternate, so that a disturbance of some seconds doesn't affect all repeats of one size. A size is
repeated until its confidence interval is narrow (Khaleghzadeh, Reddy & Lastovetsky, HPOPTA, TPDS
2018: 2.5 %), up to a limit.

Pure: records in, records out.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field

from hetsched.errors import UsageError
from hetsched.job import DeviceReport, JobReport
from hetsched.models import Knot
from hetsched.models.confidence import knot_of

MIN_REPEATS = 3
"""Minimum repeats of a size before its interval counts."""
MAX_REPEATS = 30
"""Default maximum repeats of a size with a wide interval: as many as models keep."""


@dataclass(frozen=True)
class MeasurementCase:
    """One job to repeat: `units` on each device, each with a variant."""

    units: int
    variants: Mapping[str, str]
    """Device -> variant."""

    @property
    def load(self) -> int:
        """Units of the whole job."""
        return self.units * len(self.variants)


@dataclass(frozen=True)
class MeasuredSize:
    """The evidence of one device at one size; `knots`: curve -> evidence, "total" first."""

    device: str
    variant: str
    units: int
    knots: Mapping[str, Knot]

    @property
    def half_width(self) -> float:
        """Half-width of the widest confidence interval, relative to its median."""
        return max((knot.half_width for knot in self.knots.values()), default=math.inf)


@dataclass(frozen=True)
class CaseProgress:
    """Progress in measuring a case; `half_width`: of its widest confidence interval."""

    case: MeasurementCase
    repeats: int
    half_width: float
    is_done: bool


@dataclass
class _CaseEvidence:
    """A case and its times, (device, curve) -> seconds of each repeat.

    All repeats count; drift during the measurement counts as noise.
    """

    case: MeasurementCase
    seconds: dict[tuple[str, str], list[float]] = field(default_factory=dict)
    repeats: int = 0
    whole_seconds: float = 0.0  # Of the last job, with all that isn't measured

    def add(self, report: DeviceReport) -> None:
        for curve, seconds in _phase_seconds(report, self.case.units).items():
            if seconds > 0:
                self.seconds.setdefault((report.device, curve), []).append(seconds)

    def sizes(self) -> list[MeasuredSize]:
        knots: dict[str, dict[str, Knot]] = {device: {} for device in self.case.variants}
        for (device, curve), repeats in self.seconds.items():
            knots[device][curve] = knot_of(float(self.case.units), repeats)
        return [
            MeasuredSize(device, self.case.variants[device], self.case.units, by_curve)
            for device, by_curve in knots.items()
        ]

    @property
    def half_width(self) -> float:
        return max(size.half_width for size in self.sizes())


class MeasurementSchedule:
    """The schedule: `ask` returns the next case, `tell` records its results.

    Parameters
    ----------
    sizes : sequence of int, units per device
    variants : mapping
        Device -> the variants to measure. A device with fewer variants than others repeats its
        last one, to keep the machine under its usual load.
    until : float
        Target half-width of the confidence interval, relative to the median.
    max_repeats : int
        Of each case.
    separate : collection of str
        Devices measured in separate jobs: a team uses the cores of others.
    """

    def __init__(
        self,
        sizes: Sequence[int],
        variants: Mapping[str, Sequence[str]],
        until: float,
        max_repeats: int = MAX_REPEATS,
        separate: Collection[str] = (),
    ) -> None:
        if not sizes or min(sizes) < 1:
            raise UsageError(f"sizes {list(sizes)}: give at least one, each at least 1 unit")
        if not variants or not all(variants.values()):
            raise UsageError("nothing to measure: no device has a variant of this workload")
        if not 0 < until < math.inf or max_repeats < 1:
            raise UsageError(f"until {until} in at most {max_repeats} repeats: must be positive")
        self.until = until
        self.max_repeats = max_repeats
        groups = [
            {device: names for device, names in variants.items() if device not in separate},
            *({device: variants[device]} for device in variants if device in separate),
        ]
        self._evidence = [_CaseEvidence(case) for group in groups for case in _cases(group, sizes)]
        self._turns = itertools.cycle(range(len(self._evidence)))

    def ask(self, seconds_left: float = math.inf) -> MeasurementCase | None:
        """Return the case to run next; None when all are done, or none fits in the time left."""
        for _ in self._evidence:
            evidence = self._evidence[next(self._turns)]
            if not self._is_done(evidence) and self._expected(evidence) < seconds_left:
                return evidence.case
        return None

    def tell(self, case: MeasurementCase, report: JobReport, whole_seconds: float = 0.0) -> None:
        """Add the results of a job of `case`, which took `whole_seconds` with everything."""
        evidence = self._evidence_of(case)
        evidence.repeats += 1
        evidence.whole_seconds = whole_seconds
        for device in report.devices:
            evidence.add(device)

    def drop(self, case: MeasurementCase) -> None:
        """Drop a case that can't run."""
        self._evidence.remove(self._evidence_of(case))
        self._turns = itertools.cycle(range(len(self._evidence)))

    def progress(self) -> list[CaseProgress]:
        """Return the progress of each case."""
        return [
            CaseProgress(e.case, e.repeats, e.half_width, self._is_done(e)) for e in self._evidence
        ]

    def measured(self) -> list[MeasuredSize]:
        """Return the evidence so far by device, variant and size, repeated variants once."""
        sizes = {
            (size.device, size.variant, size.units): size
            for evidence in reversed(self._evidence)
            for size in evidence.sizes()
        }
        return [sizes[key] for key in sorted(sizes)]

    def _expected(self, evidence: _CaseEvidence) -> float:
        """Return the whole seconds of the next job: as the last, or in proportion to another's."""
        if evidence.repeats:
            return evidence.whole_seconds
        known = [each for each in self._evidence if each.repeats]
        return max(
            (each.whole_seconds * evidence.case.load / each.case.load for each in known[-1:]),
            default=0.0,
        )

    def _evidence_of(self, case: MeasurementCase) -> _CaseEvidence:
        return next(evidence for evidence in self._evidence if evidence.case is case)

    def _is_done(self, evidence: _CaseEvidence) -> bool:
        if evidence.repeats >= self.max_repeats:
            return True
        has_min_repeats = evidence.repeats >= min(MIN_REPEATS, self.max_repeats)
        return has_min_repeats and evidence.half_width <= self.until


def _cases(variants: Mapping[str, Sequence[str]], sizes: Sequence[int]) -> list[MeasurementCase]:
    """Return every size with the first variant of each device, then with the second, and so on."""
    rounds = max(map(len, variants.values()), default=0)
    return [
        MeasurementCase(
            units,
            {device: names[min(number, len(names) - 1)] for device, names in variants.items()},
        )
        for number in range(rounds)
        for units in dict.fromkeys(sizes)
    ]


def _phase_seconds(report: DeviceReport, units: int) -> dict[str, float]:
    """Return curve -> seconds; phases only for a share in one chunk, whose sizes are equal."""
    seconds = {"total": report.seconds}
    if report.chunks == (units,) and (report.copy_in_seconds or report.copy_out_seconds):
        seconds["compute"] = report.compute_seconds
        seconds["h2d"] = report.copy_in_seconds
        seconds["d2h"] = report.copy_out_seconds
    return seconds
