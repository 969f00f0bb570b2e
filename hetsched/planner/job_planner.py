"""The planner: a load and what is known of the devices, to variants, shares, chunks and reasons.

Unknown devices get an equal share (with a link by factoring by two: Ilic & Sousa, initialization);
the rest is partitioned so that the known ones finish together, a device with a link judged by what
its best plan costs. Pure: the engine looks models up before, and stores what was measured after.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from hetsched.errors import DataError, UsageError
from hetsched.models import DeviceModel, SpeedFunction
from hetsched.models.curves.delayed import delayed
from hetsched.planner.assignment import assign
from hetsched.planner.device_totals import Planned, plans_for
from hetsched.planner.records import Assignment, Candidate, JobPlan
from hetsched.planner.shares import Device, divide
from hetsched.planner.variants import Choice, choose
from hetsched.plans.device_plan import DevicePlan, Mode
from hetsched.plans.search.equal_chunks import largest_measured
from hetsched.plans.slot_allocation import slotted
from hetsched.units import counted, format_bytes

__all__ = ["Assignment", "Candidate", "JobPlan", "plan_job"]


@dataclass(frozen=True)
class _Part:
    """One device that takes part. `device`: what it takes for a share; None: nothing is known."""

    candidate: Candidate
    choice: Choice
    device: Device | None

    @property
    def curve(self) -> SpeedFunction | None:
        return None if self.device is None else self.device.curve

    @property
    def planned(self) -> Planned | None:
        refined = None if self.device is None else self.device.refined
        return refined if isinstance(refined, Planned) else None

    @property
    def name(self) -> str:
        return self.candidate.info.name


def plan_job(
    load: int, candidates: Sequence[Candidate], held: Mapping[str, int] | None = None
) -> JobPlan:
    """Split `load` over `candidates`; those whose share is 0 get no assignment.

    Parameters
    ----------
    load : int, units, >= 1
    candidates : sequence of Candidate
    held : mapping of device to int, units, optional
        Shares that are not to be found anew; only their chunks are.

    Raises
    ------
    DataError
        A unit is too big for every device.
    UsageError
        The load is not positive, or there are no candidates.
    """
    if load < 1 or not candidates:
        raise UsageError(
            f"load: {load} units for {len(candidates)} devices; needs at least 1 of both"
        )
    usable, reasons = _usable(candidates)
    parts = _parts(load, usable)
    shares = _shares(load, parts) if held is None else _held(held, load, parts)
    ids, firsts = itertools.count(), itertools.accumulate(shares, initial=0)
    assignments = tuple(
        assign(
            p.candidate, p.choice.variant, p.choice.model, p.curve, share, first, ids, p.planned
        )
        for p, share, first in zip(parts, shares, firsts, strict=False)
        if share
    )
    times = [a.predicted_seconds for a in assignments]
    known = [seconds for seconds in times if seconds is not None]
    predicted = max(known) if len(known) == len(times) else None
    reasons += [_reason(part, share) for part, share in zip(parts, shares, strict=True)]
    exploring = any(part.choice.exploring for part in parts)
    curves = {part.name: part.curve for part in parts if part.curve is not None}
    return JobPlan(assignments, predicted, tuple(reasons), exploring, curves, tuple(usable))


def _usable(candidates: Sequence[Candidate]) -> tuple[list[Candidate], list[str]]:
    """The candidates whose memory holds one unit, and why the others are left out."""
    usable, reasons = [], []
    for candidate in candidates:
        if not candidate.models:
            reasons.append(f"{candidate.info.name}: left out, it has no variant to run")
        elif candidate.info.link and not slotted(candidate.demand).fits([1]):
            reasons.append(_too_big(candidate))
        else:
            usable.append(candidate)
    if not usable:
        raise DataError(f"no device can take even one unit: {'; '.join(reasons)}")
    return usable, reasons


def _too_big(candidate: Candidate) -> str:
    demand = slotted(candidate.demand)
    return (
        f"{candidate.info.name}: left out, one unit needs {format_bytes(demand.need([1]))}"
        f" of its memory, the limit is {format_bytes(demand.limit or 0)}"
    )


def _parts(load: int, candidates: Sequence[Candidate]) -> list[_Part]:
    choices = choose(candidates, load / len(candidates))
    return [
        _Part(candidate, choice, _device(candidate, choice.model, load))
        for candidate, choice in zip(candidates, choices, strict=True)
    ]


def _device(candidate: Candidate, model: DeviceModel | None, load: int) -> Device | None:
    if model is None:
        return None
    if not candidate.info.link:
        return Device(delayed(model.total, candidate.charge))
    if candidate.measured_total:
        return Device(model.total)
    if load == 1 and largest_measured(model):
        # There is only one plan, and it was measured.
        return Device(model.total)
    plans = plans_for(candidate, model, load)
    return Device(None, Planned(plans, model, load, corrected=not candidate.limited))


def _shares(load: int, parts: Sequence[_Part]) -> list[int]:
    """Units of each part; unknown ones first, so that even a single unit teaches something."""
    known = [i for i, part in enumerate(parts) if part.device is not None]
    unknown = [i for i, part in enumerate(parts) if part.device is None]
    shares = [0] * len(parts)
    left = load
    for order, index in enumerate(unknown):
        # The last ones make up for rounding where nobody else takes the rest.
        waiting = len(unknown) - order if not known else 0
        equal = -(-left // waiting) if waiting else max(1, load // len(parts))
        shares[index] = min(left, equal)
        left -= shares[index]
    if known and left:
        devices = [part.device for part in parts if part.device is not None]
        for index, share in zip(known, divide(left, devices), strict=True):
            shares[index] = share
    return shares


def _held(held: Mapping[str, int], load: int, parts: Sequence[_Part]) -> list[int]:
    shares = [held.get(part.name, 0) for part in parts]
    if sum(shares) != load:
        raise UsageError(f"held: shares of {sum(shares)} units, of a load of {load}")
    for part, share in zip(parts, shares, strict=True):
        if part.device is not None:
            part.device.look(share)
    return shares


def _reason(part: _Part, share: int) -> str:
    variant, units = part.choice.variant, counted(share, "unit")
    if share == 0 and part.curve is None:
        return f"{part.name}: no share, there are too few units to measure it too"
    if share == 0:
        return f"{part.name}: no share, the others finish sooner without it"
    if part.device is None:
        return f"{part.name}: {units}, an equal share: {variant} was never measured here"
    trying = ", tried again" if part.choice.exploring else ""
    how = f", {_how(part.planned.plan(share))}" if part.planned else ""
    return f"{part.name}: {units} by the speed of {variant}{trying}{how}"


def _how(plan: DevicePlan) -> str:
    """The kind of plan in a few words."""
    chunks = len(plan.chunks)
    pieces = "one chunk" if chunks == 1 else f"{chunks} chunks"
    if plan.mode is Mode.RING:
        return f"{pieces} in a ring of {plan.slots}" if plan.slots > 1 else f"{pieces} in turn"
    times = len(plan.sub_distributions)
    return pieces if times == 1 else f"{pieces} in {times} installments"
