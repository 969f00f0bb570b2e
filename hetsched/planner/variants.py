"""Which variant each device runs: the measured best one, found by bounded exploration.

Equal CPU devices share what they find out: one curve for all of them, a factor for each
(`models.family`). Until every variant was measured somewhere, each device tries another one (a
single device every other run): two cores know four variants after two runs, and are balanced from
the fourth on. A variant that may only have been unlucky is tried again much later, by one device
at a time, so that no job pays much for it, until two tries agree; and again where loads have
become much larger or smaller than those that it was judged by, or where it is only presumed that
a device which became slower with another variant is so with this one. Other kinds take the first
variant: an emulated device's times don't depend on it.
"""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass, replace

from hetsched.models import DeviceModel, PiecewiseLinear
from hetsched.models.evidence.confidence import AGREE
from hetsched.models.evidence.equal_cores import together
from hetsched.planner.records import Candidate

SAME = 1.03
"""Variants whose times differ by less are as fast, as far as noisy runs can tell: changing between
them would only change the split each time. Arbitrary."""
CLOSE = 2.0
"""A variant this much slower than the best may only have been unlucky: one measurement beside a
busy neighbour is that far off. Arbitrary."""
TRIES = 3
"""Runs after which a variant's time is believed, if two didn't agree. Arbitrary."""
RARELY = 8
"""Runs of the best variant for each try of another that is close to it. Arbitrary."""

ALIKE = 4.0
"""Loads that differ by less say the same about variants. Arbitrary."""
ELSEWHERE = 2
"""Runs of the best variant for each try of another that was never tried at such a load; fewer
would keep a core trying whose share stays far from what was expected. Arbitrary."""


@dataclass(frozen=True)
class Choice:
    """`model` may be an equal device's where this one has not run the variant yet."""

    variant: str
    model: DeviceModel | None
    exploring: bool = False


def choose(candidates: Sequence[Candidate], units: float) -> list[Choice]:
    """One choice for each candidate, in their order.

    Parameters
    ----------
    candidates : sequence of Candidate
    units : float
        Their mean share. Each is judged at a load that it may expect.
    """
    shares = _expected(candidates, units)
    groups: dict[object, list[int]] = {}
    for index, candidate in enumerate(candidates):
        info = candidate.info
        single = index if not info.is_core else -1
        groups.setdefault((single, info.identity, tuple(candidate.models)), []).append(index)
    chosen: dict[int, Choice] = {}
    for indices in groups.values():
        members = [candidates[index] for index in indices]
        share = statistics.fmean(shares[index] for index in indices)
        chosen.update(zip(indices, _for_group(members, share), strict=True))
    return [chosen[index] for index in range(len(candidates))]


def _expected(candidates: Sequence[Candidate], units: float) -> list[float]:
    """Shares in proportion to the speeds at `units`; a mean one where no speed is known."""
    least = [
        min((_about(model, units) for model in one.models.values() if model), default=None)
        for one in candidates
    ]
    speeds = [1 / seconds for seconds in least if seconds]
    if not speeds:
        return [units] * len(candidates)
    mean = statistics.fmean(speeds)
    return [units / seconds / mean if seconds else units for seconds in least]


def _about(model: DeviceModel, units: float) -> float:
    """Seconds of `units`; of a device with a link those of its slowest phase."""
    if not model.link:
        return float(model.total.time(units))
    phases = (model.h2d, model.compute, model.d2h)
    return max(float(phase.time(units)) for phase in phases if phase is not None)


def _for_group(members: Sequence[Candidate], units: float) -> list[Choice]:
    names = list(members[0].models)
    if not members[0].info.is_core:
        return [Choice(names[0], members[0].models[names[0]])]
    tried = {name: max(m.tried.get(name, 0) for m in members) for name in names}
    times = {name: _least_time(members, name, units) for name in names}
    known = {name: seconds for name, seconds in times.items() if seconds is not None}
    if not known:
        order = sorted(names, key=lambda name: tried[name])  # stable: then by preference
        return [Choice(order[i % len(order)], None, True) for i in range(len(members))]
    best = _best(known, tried)
    choices = [Choice(best, model) for model in _models(members, best, units)]
    for index, name in _explorers(members, best, known, tried, units):
        choices[index] = Choice(name, _models(members, name, units)[index], True)
    return choices


def _best(known: dict[str, float], tried: dict[str, int]) -> str:
    """The fastest, or the one that ran most of those that are as fast."""
    least = min(known.values())
    as_fast = [name for name, seconds in known.items() if seconds <= SAME * least]
    return max(as_fast, key=lambda name: (tried[name], -known[name]))


def _explorers(
    members: Sequence[Candidate],
    best: str,
    known: dict[str, float],
    tried: dict[str, int],
    units: float,
) -> list[tuple[int, str]]:
    """(index of a member, the variant it tries)."""
    unknown = [name for name in tried if name not in known and tried[name] < TRIES]
    if unknown:
        if len(members) == 1 and sum(tried.values()) % 2:
            return []
        # Those that know the best explore first: the others get to know it meanwhile.
        free = sorted(range(len(members)), key=lambda i: (members[i].models[best] is None, -i))
        return list(zip(free, unknown, strict=False))
    near = {name: _believed(members, name, units) for name in tried}
    again = _worth_another_try(best, known, tried, near)
    if again is None:
        return []
    # One that hasn't run it yet is asked first: its neighbours may have had bad luck with it.
    return [(min(range(len(members)), key=lambda i: members[i].tried.get(again, 0)), again)]


def _worth_another_try(
    best: str, known: dict[str, float], tried: dict[str, int], near: dict[str, int]
) -> str | None:
    """`near`: the tries at such loads."""
    for name in sorted(known, key=lambda name: known[name]):
        elsewhere = near[best] > 0 and near[name] == 0
        pause = ELSEWHERE if elsewhere else RARELY
        due = near[name] < TRIES and tried[best] >= pause * tried[name]
        if name != best and due and known[name] <= CLOSE * known[best]:
            return name
    return None


def _believed(members: Sequence[Candidate], name: str, units: float) -> int:
    """Runs of `name` at loads like `units` on any of them; `TRIES` where two already agree.

    All runs where a model can't tell; none if its time is only presumed.
    """
    tries, paces = 0, []
    for member in members:
        model, tried = member.models[name], member.tried.get(name, 0)
        if model is None or not isinstance(model.total, PiecewiseLinear):
            tries += tried
        elif not model.total.doubtful:
            near = _paces(model.total, units)
            tries += min(tried, len(near))
            paces += near
    agree = len(paces) > 1 and max(paces) < AGREE * min(paces)
    return max(tries, TRIES) if agree else tries


def _paces(curve: PiecewiseLinear, units: float) -> list[float]:
    """Seconds a unit of each observation at a load like `units`."""
    return [
        seconds / size
        for size, times in curve.times().items()
        if units / ALIKE <= size <= units * ALIKE
        for seconds in times
    ]


def _least_time(members: Sequence[Candidate], name: str, units: float) -> float | None:
    models = {id(m.models[name]): m.models[name] for m in members}.values()
    return min((float(m.total.time(units)) for m in models if m is not None), default=None)


def _models(members: Sequence[Candidate], name: str, units: float) -> list[DeviceModel | None]:
    """Each member's model of `name`, as all of them know it.

    One that has not run it yet gets its equals', slowed as it is with other variants.
    """
    own = [member.models[name] for member in members]
    found = shared(own)
    known = [model for model in found if model is not None]
    if not known or len(known) == len(found):
        return found
    lent = sorted(known, key=lambda model: float(model.total.time(units)))[(len(known) - 1) // 2]
    return [
        _scaled(lent, _slowness(members, i, units)) if model is None else model
        for i, model in enumerate(found)
    ]


def shared(models: Sequence[DeviceModel | None]) -> list[DeviceModel | None]:
    """Models of equal devices, by the curve that they have in common times each one's factor.

    Those that never learn stay as they are. Remembered: the next plan asks for the same again.
    """
    learnt = [(i, m) for i, m in enumerate(models) if m and isinstance(m.total, PiecewiseLinear)]
    curves = tuple(m.total for _, m in learnt if isinstance(m.total, PiecewiseLinear))
    found = list(models)
    for (i, model), total in zip(learnt, together(curves), strict=True):
        found[i] = replace(model, total=total)
    return found


def _slowness(members: Sequence[Candidate], index: int, units: float) -> float:
    """How many times as long one member takes as its equals: median over what it has run."""
    ratios = []
    for name in members[index].models:
        models = shared([member.models[name] for member in members])
        mine = models[index]
        if mine is not None:
            times = [float(model.total.time(units)) for model in models if model is not None]
            ratios.append(float(mine.total.time(units)) / statistics.median_low(times))
    return statistics.median(ratios) if ratios else 1.0


def _scaled(model: DeviceModel, factor: float) -> DeviceModel:
    total = model.total
    if factor == 1.0 or not isinstance(total, PiecewiseLinear) or not len(total.points):
        return model
    units, seconds = total.points.T
    return replace(model, total=total.through(units, factor * seconds))
