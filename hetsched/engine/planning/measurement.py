"""Measuring on purpose: which job comes next until every size is well known, and its plan.

A job for measuring gives every device the same number of units, in one chunk: copied in, computed,
copied out, so that no phase overlaps another one of that device and every phase is known at just
that size. All devices run at once, as they do in other jobs: cores that share a memory are slower
then, and that is the speed to plan with. Sizes take turns, so that a disturbance of some seconds
doesn't fall on all repeats of one. A size is repeated until its confidence interval is narrow
(Khaleghzadeh, Reddy & Lastovetsky, HPOPTA, TPDS 2018: 2.5 %), a bounded number of times.

Pure: records in, records out.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field

from hetsched.device import Chunk, DeviceInfo
from hetsched.errors import Unavailable, UsageError
from hetsched.job import DeviceReport, JobReport
from hetsched.memory import MemoryDemand
from hetsched.models import Knot
from hetsched.models.evidence.confidence import knot
from hetsched.planner.records import Assignment, JobPlan
from hetsched.plans.device_plan import DevicePlan
from hetsched.plans.search.recipes import evenly
from hetsched.plans.slot_allocation import slot_bytes, slotted

LEAST = 3
"""Repeats of every size, before its interval is looked at."""
MOST = 30
"""Repeats of a size by default, however wide its interval: as many as models remember."""
WINDOW = 2
"""Chunks to send ahead, of a share that memory has cut into several."""


def equal_plan(
    load: int,
    devices: Sequence[tuple[DeviceInfo, MemoryDemand]],
    variants: Mapping[str, str],
    installed: Callable[[DeviceInfo], Sequence[str]],
) -> JobPlan:
    """Every device an equal share of `load`, in as few chunks as its memory allows.

    Parameters
    ----------
    load : int, units
        A multiple of the number of variants.
    devices : sequence of (DeviceInfo, MemoryDemand)
        Those that are there.
    variants : mapping
        Device -> the variant that it runs.
    installed : callable
        The names of the variants that work on a device.

    Raises
    ------
    Unavailable
        A device of `variants` isn't there, or the variant doesn't work on it.
    DataError
        Not even one unit fits.
    UsageError
        The load can't be shared equally.
    """
    if load % len(variants):
        raise UsageError(f"{load} units can't be measured on {len(variants)} devices equally")
    there = {info.name: (info, demand) for info, demand in devices}
    for info, _ in devices:
        if info.name in variants and not variants.keys().isdisjoint(info.members):
            raise UsageError(f"{info.name} can't be measured beside its own cores")
    for device, variant in variants.items():
        if device not in there:
            raise Unavailable(f"{device} can't be measured: it isn't there any more")
        if variant not in installed(there[device][0]):
            raise Unavailable(f"{device} can't be measured with {variant}: it doesn't work there")
    share = load // len(variants)
    ids = itertools.count()
    assignments = tuple(
        _assignment(*there[device], variant, share, number * share, ids)
        for number, (device, variant) in enumerate(variants.items())
    )
    return JobPlan(assignments, None, (f"measured: {share} units on each device",))


def _assignment(
    info: DeviceInfo,
    demand: MemoryDemand,
    variant: str,
    share: int,
    first: int,
    ids: itertools.count[int],
) -> Assignment:
    largest = slotted(demand).most(share) if info.link else share
    sizes = evenly(share, math.ceil(share / largest))
    starts = itertools.accumulate(sizes, initial=first)
    return Assignment(
        device=info.name,
        variant=variant,
        plan=DevicePlan(tuple((size,) for size in sizes)),
        chunks=tuple(
            Chunk(next(ids), start, size, barrier=start > first, last=True)
            for start, size in zip(starts, sizes, strict=False)
        ),
        chunk=max(sizes),
        slots=1,
        memory=slot_bytes(demand, max(sizes)) if info.link else 0,
        window=WINDOW,
        predicted_seconds=None,
    )


@dataclass(frozen=True)
class Case:
    """What is measured by one job, again and again: so many units a device, each by a variant."""

    units: int
    variants: Mapping[str, str]
    """Device -> variant."""

    @property
    def load(self) -> int:
        """Units of the whole job."""
        return self.units * len(self.variants)


@dataclass(frozen=True)
class Finding:
    """What is known of one device at one size; `knots`: curve -> evidence, "total" first."""

    device: str
    variant: str
    units: int
    knots: Mapping[str, Knot]

    @property
    def half_width(self) -> float:
        """Of the widest interval, over its median."""
        return max((knot.half_width for knot in self.knots.values()), default=math.inf)


@dataclass
class _Cell:
    """One case and its evidence, (device, curve) -> seconds of each repeat.

    All repeats count: what drifts within a measurement is noise to it.
    """

    case: Case
    evidence: dict[tuple[str, str], list[float]] = field(default_factory=dict)
    repeats: int = 0

    def add(self, report: DeviceReport) -> None:
        for curve, seconds in _phases(report, self.case.units).items():
            if seconds > 0:
                self.evidence.setdefault((report.device, curve), []).append(seconds)

    def measured(self) -> list[Finding]:
        found: dict[str, dict[str, Knot]] = {device: {} for device in self.case.variants}
        for (device, curve), repeats in self.evidence.items():
            found[device][curve] = knot(float(self.case.units), repeats)
        return [
            Finding(device, self.case.variants[device], self.case.units, knots)
            for device, knots in found.items()
        ]

    @property
    def half_width(self) -> float:
        return max(one.half_width for one in self.measured())


class Measuring:
    """Says which case to run next, and is told what came of it.

    Parameters
    ----------
    sizes : sequence of int, units a device
    variants : mapping
        Device -> the variants that it is measured with. Where one has fewer than others it repeats
        its last one meanwhile: the others are to be as busy a neighbour for each other as always.
    apart : collection of str
        Those of the devices that are measured in jobs of their own: a team has others' cores.
    until : float
        Half-width of the confidence interval, over the median, that is narrow enough.
    most : int
        Repeats of a case at most.

    Raises
    ------
    UsageError
        No size, or one below 1; no device; `until` or `most` isn't positive.
    """

    def __init__(
        self,
        sizes: Sequence[int],
        variants: Mapping[str, Sequence[str]],
        until: float,
        most: int = MOST,
        apart: Collection[str] = (),
    ) -> None:
        if not sizes or min(sizes) < 1:
            raise UsageError(f"sizes: {list(sizes)}; needs one or more, of at least 1 unit")
        if not variants or not all(variants.values()):
            raise UsageError("nothing to measure: no device has a variant of this workload")
        if not 0 < until < math.inf or most < 1:
            raise UsageError(f"until {until} in at most {most} repeats: both must be positive")
        self.until = until
        self.most = most
        groups = [
            {device: names for device, names in variants.items() if device not in apart},
            *({device: variants[device]} for device in variants if device in apart),
        ]
        self._cells = [
            _Cell(Case(units, {device: _at(names, turn) for device, names in group.items()}))
            for group in groups
            for turn in range(max(map(len, group.values()), default=0))
            for units in dict.fromkeys(sizes)
        ]
        self._turns = itertools.cycle(range(len(self._cells)))

    def ask(self) -> Case | None:
        """The case to run next; None: all is measured."""
        for _ in self._cells:
            cell = self._cells[next(self._turns)]
            if not self._done(cell):
                return cell.case
        return None

    def tell(self, case: Case, report: JobReport) -> None:
        """What a job of `case` took."""
        cell = self._cell(case)
        cell.repeats += 1
        for device in report.devices:
            cell.add(device)

    def drop(self, case: Case) -> None:
        """`case` can't be run."""
        self._cells.remove(self._cell(case))
        self._turns = itertools.cycle(range(len(self._cells)))

    def cases(self) -> list[tuple[Case, int, float, bool]]:
        """(case, repeats, half-width of the widest interval, whether it is done) of each."""
        return [(c.case, c.repeats, c.half_width, self._done(c)) for c in self._cells]

    def measured(self) -> list[Finding]:
        """What is known by now, by device, variant and units. Repeats of a variant count once."""
        found = {
            (one.device, one.variant, one.units): one
            for cell in reversed(self._cells)
            for one in cell.measured()
        }
        return [found[key] for key in sorted(found)]

    def _cell(self, case: Case) -> _Cell:
        return next(cell for cell in self._cells if cell.case is case)

    def _done(self, cell: _Cell) -> bool:
        narrow = cell.repeats >= min(LEAST, self.most) and cell.half_width <= self.until
        return narrow or cell.repeats >= self.most


def _at(names: Sequence[str], turn: int) -> str:
    return names[min(turn, len(names) - 1)]


def _phases(report: DeviceReport, units: int) -> dict[str, float]:
    """Curve -> seconds. Phases only of a share in one chunk: else they are of other sizes."""
    found = {"total": report.seconds}
    if report.chunks == (units,) and (report.copy_in_seconds or report.copy_out_seconds):
        found["compute"] = report.compute_seconds
        found["h2d"] = report.copy_in_seconds
        found["d2h"] = report.copy_out_seconds
    return found
