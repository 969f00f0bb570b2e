"""Which variant each device runs: the measured best one, found by bounded exploration.

Equal CPU devices share what they find out: one curve for all of them, a factor for each
(`models.family`). Until every variant was measured somewhere, each device tries another one (a
single device every other run): two cores know four variants after two runs, and are balanced from
the fourth on. A variant that may only have been unlucky is tried again much later, by one device
at a time, so that no job pays much for it; and again where loads have become much larger or
smaller than those that it was judged by. Other kinds take the first variant: an emulated device's
times don't depend on it.
"""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass, replace

from hetsched.models import DeviceModel, PiecewiseLinear
from hetsched.models.family import together
from hetsched.schedule.records import Candidate

SAME = 1.03
"""Variants whose times differ by less are as fast, as far as noisy runs can tell: changing between
them would only change the split each time. Arbitrary."""
CLOSE = 2.0
"""A variant this much slower than the best may only have been unlucky: one measurement beside a
busy neighbour is that far off. Arbitrary."""
TRIES = 3
"""Runs after which a variant's time is believed. Arbitrary."""
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
    """One choice for each candidate, in their order, judged at loads of `units`."""
    groups: dict[object, list[int]] = {}
    for index, candidate in enumerate(candidates):
        info = candidate.info
        single = index if info.kind != "cpu" else -1
        groups.setdefault((single, info.identity, tuple(candidate.models)), []).append(index)
    chosen: dict[int, Choice] = {}
    for indices in groups.values():
        members = [candidates[index] for index in indices]
        chosen.update(zip(indices, _for_group(members, units), strict=True))
    return [chosen[index] for index in range(len(candidates))]


def _for_group(members: Sequence[Candidate], units: float) -> list[Choice]:
    names = list(members[0].models)
    if members[0].info.kind != "cpu":
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
    near = {name: max(_tries(m, name, units) for m in members) for name in tried}
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


def _tries(member: Candidate, name: str, units: float) -> int:
    """Runs of `name` at loads like `units`; all of them where the model can't tell."""
    model, tried = member.models[name], member.tried.get(name, 0)
    if model is None or not isinstance(model.total, PiecewiseLinear):
        return tried
    return min(tried, model.total.observed(units / ALIKE, units * ALIKE))


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
