"""The one rule for trials: what might be faster and isn't known well, and whether it is tried.

Each enumerator lists options of one sort, and how they may turn out; nothing else explores. The
best one of positive value is tried in the next run (`partition.options`): what it may save in the
runs to come must exceed what the trial may lose. Pure.
"""

from __future__ import annotations

import functools
import math
from collections import Counter
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import fmean
from typing import NamedTuple

from hetsched.device import DeviceInfo
from hetsched.explain.records import WeighedOption
from hetsched.models import DeviceModel, PhaseCurve, SpeedFunction
from hetsched.models.functions import planner_curve
from hetsched.models.races import Comparison
from hetsched.models.samples import CO_RUNNERS, CoRunners
from hetsched.models.windows import MIN_TRUSTED_COUNT
from hetsched.partition import geometric
from hetsched.partition.options import MIN_GAIN, Option, Outcome
from hetsched.planner.neighbours import DeviceSet, co_runners_of
from hetsched.planner.records import Assignment, Candidate, JobPlan, PlannedRace
from hetsched.planner.variants import (
    MIN_RACE_UNITS,
    equal_devices,
    rough_seconds,
    rounds_of,
    similar_runs,
)
from hetsched.plans.costs import MAX_GRANULES
from hetsched.plans.device_plan import DevicePlan, fits
from hetsched.plans.recurrence import price
from hetsched.plans.ring_search import best_plan

HORIZON = 12
"""Runs that a finding serves at most; if there were fewer so far, as many as these."""
MAX_SPEEDUP = 1.5
"""What isn't measured is presumed to be between this much faster and, unless something bounds it,
as much slower; evenly in the logarithm."""
EVEN = (1 / 6, 1 / 2, 5 / 6)
"""Where an even distribution is evaluated, as parts of its range: one third of it for each."""
TEAM_START_SECONDS = 0.5
"""Of a team's process, which keeps one core busy while jobs go on."""
MAX_SIZE_COST = 0.10
"""Relative cost of a trial of a chunk size at most once a split has settled, if it is right after
a step."""


@dataclass(frozen=True)
class Trial:
    """Something that might be faster. `what`: in words, unlike those of others.

    `plan` makes the run in which it is tried, or if it `is_known` adopted; None: it can't be made.
    `evidence`: what is known of it; while that stays the same, it is tried thrice at most.
    `device_set`: what becomes the present set if a known option is adopted.
    """

    what: str
    option: Option
    plan: Callable[[], JobPlan | None]
    evidence: Hashable
    device_set: DeviceSet | None = None

    @property
    def is_known(self) -> bool:
        return self.device_set is not None and len(self.option.outcomes) == 1


@dataclass
class Look:
    """When a device without a share was last measured, and since when it was too slow; runs."""

    seen: int
    slow_since: int | None = None

    def chance_of_return(self, run: int) -> float:
        """Return the probability that it has its usual speed again (Lindy's law).

        What was slow for `age` runs when it was last looked at is over after as many with
        probability 1/2.
        """
        slow_since = self.seen if self.slow_since is None else self.slow_since
        idle = max(1, run - self.seen)
        age = max(1, self.seen - slow_since + MIN_TRUSTED_COUNT)
        return idle / (idle + age)


@dataclass(frozen=True)
class Situation:
    """What is known before a run.

    `plan`: that of the present set, without a trial; `sets`: all that are considered. `planned`
    plans a set of devices, with fixed shares if given, and with changed candidates.
    """

    load: int
    run: int
    plan: JobPlan
    seconds: float
    present: DeviceSet
    sets: Sequence[DeviceSet]
    candidates: Mapping[str, Candidate]
    machine: Sequence[DeviceInfo]
    looks: Mapping[str, Look]
    usual_paces: Mapping[str, float]
    planned: Callable[..., JobPlan | None]

    @property
    def horizon(self) -> float:
        return min(HORIZON, self.run - 1)

    @property
    def is_settled(self) -> bool:
        """Whether the split is: after a first run, its shares were measured often enough."""
        return self.run > 1 + MIN_TRUSTED_COUNT

    def value(self, trial: Trial) -> float:
        return trial.option.value(self.seconds, self.horizon)

    def once(self, seconds: float) -> float:
        """Return what a cost that is paid once weighs: it serves as many runs as there were."""
        return seconds * self.horizon / max(1, self.run - 1)

    def seconds_if(self, part: float, ratio: float) -> float:
        """Return the job's seconds if `part` of its units take `ratio` times as long each."""
        return self.seconds / (1 + part * (1 / ratio - 1))


def all_trials(now: Situation) -> Iterator[Trial]:
    yield from probes(now)
    yield from device_sets(now)
    yield from variants(now)
    yield from chunk_sizes(now)


def between(low: float, high: float) -> tuple[Outcome, ...]:
    """Return outcomes spread evenly in the logarithm between two times, in seconds."""
    times = [low * (high / low) ** part for part in EVEN]
    return tuple((1 / len(EVEN), seconds, seconds) for seconds in times)


def doubt(runs: int) -> float:
    """Return the ratio by which a time may be wrong that was measured so often."""
    return 1.0 if runs >= MIN_TRUSTED_COUNT else MAX_SPEEDUP ** (1 / (runs + 1))


# ---- devices without a share


def probes(now: Situation) -> Iterator[Trial]:
    """Yield a unit for each device that the plan leaves out: it may be faster than its model."""
    for info in now.present.infos:
        device = info.name
        if device in now.plan.shares or device not in now.plan.curves:
            continue
        runs = sum(now.candidates[device].run_counts.values())
        unit = float(now.plan.curves[device].time(1.0))
        chance = 0.5
        if runs >= MIN_TRUSTED_COUNT and device in now.looks:
            chance = now.looks[device].chance_of_return(now.run)
        usual = _usual_curve(now, device, is_new=runs < MIN_TRUSTED_COUNT)
        curves = [usual if name == device else c for name, c in now.plan.curves.items()]
        better = min(now.seconds, geometric(curves, now.load).makespan)
        outcomes = (
            (chance, better, max(now.seconds, float(usual.time(1.0)))),
            (1 - chance, now.seconds, max(now.seconds, unit)),
        )
        yield Trial(
            f"{device}: 1 unit as a probe, since it may be as fast as others or before",
            Option(outcomes),
            functools.partial(_probed, now, device),
            runs,
        )


def _usual_curve(now: Situation, device: str, *, is_new: bool) -> SpeedFunction:
    """Return the curve that a device has if it isn't as slow as its model says."""
    own = now.plan.curves[device]
    identity = now.candidates[device].info.identity
    working = [name for name in now.plan.shares if name in now.plan.curves]
    equals = [name for name in working if now.candidates[name].info.identity == identity]
    if equals or is_new:
        return min(
            (now.plan.curves[name] for name in equals or working),
            key=lambda curve: float(curve.time(1.0)),
        )
    unit = float(own.time(1.0))
    ratio = min(1.0, now.usual_paces.get(device, unit) / unit)
    return planner_curve(own).scaled(ratio) or own


def _probed(now: Situation, device: str) -> JobPlan | None:
    shares = dict(now.plan.shares)
    last = max(shares, key=lambda name: float(now.plan.curves[name].time(shares[name])))
    if shares[last] == 1 and len(shares) == 1 and now.load > 1:
        return None
    shares[last] -= 1
    shares[device] = 1
    plan = now.planned(now.present, {name: share for name, share in shares.items() if share})
    return None if plan is None else plan.with_purposes({device: "probe"})


# ---- other sets of devices


def device_sets(now: Situation) -> Iterator[Trial]:
    """Yield the other sets: a device may be faster beside fewer others, a team than its cores.

    The start of a team's process counts once.
    """
    others = [each for each in now.sets if each.names != now.present.names]
    beside_present = co_runners_of(now.present.infos, now.machine) if others else {}
    used = {assignment.device: assignment for assignment in now.plan.assignments}
    for other in others:
        team = next((now.candidates[i.name] for i in other.infos if i.members), None)
        if team is None and not now.is_settled:
            continue
        beside = co_runners_of(other.infos, now.machine)
        uses = [
            _use_beside(
                now, info, beside[info.name], used.get(info.name), beside_present.get(info.name)
            )
            if team is None or info is not team.info
            else _use_of_team(now, team)
            for info in other.infos
        ]
        known = [use for use in uses if use is not None]
        if len(known) < len(uses):
            continue
        what, start, tried = f"the job with {other.label} only", 0.0, other
        if team is not None:
            name, variant = team.info.name, known[other.infos.index(team.info)].variant
            what = f"{name} by {variant} instead of its cores"
            tried = replace(other, variants={name: variant})
            start = TEAM_START_SECONDS / team.info.threads if team.needs_start else 0.0
        slow = _shared_seconds(now.load, [use.slow for use in known])
        outcomes: tuple[Outcome, ...] = ((1.0, slow, slow),)
        if any(use.runs < MIN_TRUSTED_COUNT for use in known):
            outcomes = between(_shared_seconds(now.load, [use.fast for use in known]), slow)
        yield Trial(
            f"{what}, which may be faster",
            Option(outcomes, now.once(start)),
            functools.partial(now.planned, tried),
            sum(use.runs for use in known),
            other,
        )


class Use(NamedTuple):
    """A device in a set: its possible seconds per unit, the fewest and the most; and its runs."""

    variant: str
    fast: float
    slow: float
    runs: int


def _shared_seconds(load: int, paces: Sequence[float]) -> float:
    """Return about the seconds of a load, given those per unit on each device."""
    return max(min(paces), load / sum(1 / pace for pace in paces))


def _use_beside(
    now: Situation,
    info: DeviceInfo,
    beside: CoRunners,
    used: Assignment | None,
    beside_present: CoRunners | None,
) -> Use | None:
    """Return the use of a device beside these co-runners; None: it was never measured.

    `used`: what it does in the present plan, beside `beside_present`.
    """
    candidate = now.candidates[info.name]
    units = now.load / len(now.plan.assignments)
    variant = _fastest(candidate, units) if used is None else used.variant
    if variant is None:
        return None
    model, speedup, runs = _model_beside(candidate, variant, beside)
    if model is None:
        return None
    seconds = rough_seconds(model, units)
    pace = seconds / units
    if used is not None and used.pace and beside_present is not None:
        present, _, _ = _model_beside(candidate, variant, beside_present)
        if present is not None:
            pace = used.pace * seconds / rough_seconds(present, units)
    return Use(variant, pace / speedup, pace, runs)


def _model_beside(
    candidate: Candidate, variant: str, beside: CoRunners
) -> tuple[DeviceModel | None, float, int]:
    """Return the model beside these co-runners, the speedup it may lack, and its runs there.

    Without measurements there, that beside fewer others, which may be too fast; else that beside
    more of them, which may be up to MAX_SPEEDUP too slow.
    """
    index = CO_RUNNERS.index(beside)
    for key in (*CO_RUNNERS[index::-1], *CO_RUNNERS[index + 1 :]):
        model = candidate.models_beside.get(key, {}).get(variant)
        if model is not None:
            speedup = MAX_SPEEDUP if key in CO_RUNNERS[index + 1 :] else 1.0
            return model, speedup, candidate.runs_beside.get(beside, {}).get(variant, 0)
    return candidate.models.get(variant), 1.0, candidate.run_counts.get(variant, 0)


def _fastest(candidate: Candidate, units: float) -> str | None:
    models = {name: model for name, model in candidate.models.items() if model is not None}
    return min(models, key=lambda name: rough_seconds(models[name], units), default=None)


def _use_of_team(now: Situation, team: Candidate) -> Use | None:
    """Return the use of a team, by the best variant of its cores; None: these weren't measured.

    Unmeasured, it takes between a core's time over its threads and a bit more than a core.
    """
    cores = [
        (float(model.total.time(1.0)), name)
        for member in team.info.members
        if member in now.candidates
        for name, model in now.candidates[member].models.items()
        if model is not None and name in team.models
    ]
    if not cores:
        return None
    pace, fastest = min(cores)
    variant = _fastest(team, now.load) or fastest
    model = team.models[variant]
    if model is None:
        return Use(variant, pace / team.info.threads, MAX_SPEEDUP * pace, 0)
    pace = rough_seconds(model, now.load) / now.load
    runs = similar_runs(team, variant, now.load)
    return Use(variant, pace / doubt(runs), pace * doubt(runs), runs)


# ---- variants


def variants(now: Situation) -> Iterator[Trial]:
    """Yield races of the other variants that are worth it, or a run of each.

    A device with one kernel at a time, such as a GPU, can't race, nor can a core with one unit.
    """
    for devices in equal_devices(now.plan):
        candidate, present = now.candidates[devices[0].device], devices[0].variant
        share = min(each.plan.share for each in devices)
        part = sum(each.plan.share for each in devices) / now.load
        others = [name for name in candidate.models if name != present]
        if candidate.can_race and share >= MIN_RACE_UNITS:
            yield from _race(now, devices, others, part)
            continue
        for name in others:
            runs = max(similar_runs(now.candidates[d.device], name, share) for d in devices)
            if runs < MIN_TRUSTED_COUNT:
                yield _whole_run(now, devices, name, runs, part)


def _whole_run(
    now: Situation, devices: Sequence[Assignment], name: str, runs: int, part: float
) -> Trial:
    ratio = _ratio(now, devices[0], name)
    ratios = between(ratio / doubt(runs), ratio * doubt(runs))
    outcomes = [(p, now.seconds_if(part, r), now.seconds * max(1.0, r)) for p, r, _ in ratios]
    names = [each.device for each in devices]
    tried = replace(now.present, variants=dict.fromkeys(names, name))
    return Trial(
        f"{names[0]}: {name} instead of {devices[0].variant}",
        Option(outcomes),
        functools.partial(now.planned, tried, now.plan.shares),
        runs,
    )


def _ratio(now: Situation, assignment: Assignment, name: str) -> float:
    """Return the measured time of a variant over that of the present one; 1 without any.

    Of a team by those of its cores, if need be.
    """
    members = now.candidates[assignment.device].info.members
    for device in (assignment.device, *members):
        models = now.candidates[device].models if device in now.candidates else {}
        model, present = models.get(name), models.get(assignment.variant)
        if model is not None and present is not None:
            units = 1.0 if device in members else assignment.plan.share
            return rough_seconds(model, units) / rough_seconds(present, units)
    return 1.0


def is_open(behind: Comparison | None) -> bool:
    """Return whether a variant may still gain MIN_GAIN, for all that races have shown."""
    return behind is None or math.exp(behind.low) < 1 - MIN_GAIN


def _race(
    now: Situation, devices: Sequence[Assignment], others: Sequence[str], part: float
) -> Iterator[Trial]:
    present, share = devices[0].variant, min(each.plan.share for each in devices)
    record = now.candidates[devices[0].device].races.similar(share)
    options = {}
    for name in others:
        behind = record.compare(name, present)
        if is_open(behind):
            ratios = _raced_ratios(behind, _ratio(now, devices[0], name))
            options[name] = [
                (p, now.seconds_if(part, r), now.seconds * (1 + max(0.0, r - 1) / 2))
                for p, r, _ in ratios
            ]
    values = {name: Option(o).value(now.seconds, now.horizon) for name, o in options.items()}
    rivals = sorted(values, key=lambda name: -values[name])[: share - 1]
    rivals = [name for name in rivals if values[name] > 0] or rivals[:1]
    if not rivals:
        return
    raced = {name: record.compare(name, present) for name in rivals}
    times = [c.ratio if c else _ratio(now, devices[0], name) for name, c in raced.items()]
    rounds = rounds_of(times, is_first=None in raced.values())
    race = PlannedRace(tuple(rivals), rounds, fmean([1.0, *times]))
    names = [each.device for each in devices]
    changes = {name: {"race": race} for name in names}
    yield Trial(
        f"{names[0]}: a race of {present} against {', '.join(rivals)}",
        Option(options[rivals[0]]),
        functools.partial(now.planned, now.present, None, changes),
        len(record.races),
    )


def _raced_ratios(behind: Comparison | None, ratio: float) -> tuple[Outcome, ...]:
    """Return the possible times of a variant over the present one's; `ratio`: without races."""
    if behind is None:
        return between(ratio / doubt(0), ratio * doubt(0))
    if not math.isfinite(behind.high):
        return between(behind.ratio / doubt(1), behind.ratio * doubt(1))
    # An even distribution with the deviation of this interval of 90 % is as wide.
    return between(math.exp(behind.low), math.exp(behind.high))


# ---- chunk sizes near a step


def chunk_sizes(now: Situation) -> Iterator[Trial]:
    """Yield a chunk of a size that nobody measured, near a step of a kernel.

    Between a fast and a slow size a learnt kernel rises linearly, so that the last fast size looks
    too slow to be used. With probability 1/2 the step is beyond the size halfway between them, and
    the best plan by such a curve can be had; else it is before that size.
    """
    for assignment in now.plan.assignments:
        model, candidate, plan = assignment.model, assignment.candidate, assignment.plan
        if model is None or candidate is None or not isinstance(model.compute, PhaseCurve):
            continue
        if plan.share > MAX_GRANULES or not candidate.info.link:
            continue
        if candidate.schedule != "best" or len(plan.sub_distributions) != 1:
            continue
        sizes = [*model.compute.halfway()]
        if not sizes:
            continue
        memory, overlap = candidate.memory, candidate.overlap
        hopeful, feared = (
            replace(model, compute=model.compute.through({size[0]: size[n] for size in sizes}))
            for n in (1, 2)
        )
        best = best_plan(plan.share, hopeful, memory, overlap=overlap)
        usual = Counter(best.chunks).most_common(1)[0][0]
        tried = with_chunk(plan, min((size for size, _, _ in sizes), key=lambda s: abs(s - usual)))
        if tried.chunks == plan.chunks or not fits(tried, memory):
            continue
        present = price(plan, model, overlap)
        better = now.seconds_if(plan.share / now.load, price(best, hopeful, overlap) / present)
        cheap, dear = (
            now.seconds * price(tried, by, overlap) / present for by in (hopeful, feared)
        )
        if now.is_settled and dear > (1 + MAX_SIZE_COST) * now.seconds:
            continue
        yield Trial(
            f"{assignment.device}: some chunks measure a size that may be faster",
            Option(((0.5, better, cheap), (0.5, now.seconds, dear))),
            functools.partial(_with_sizes, now, assignment.device, tried),
            tried.chunks,
        )


def _with_sizes(now: Situation, device: str, tried: DevicePlan) -> JobPlan | None:
    plan = now.planned(now.present, now.plan.shares, {device: {"size_trial": tried}})
    return None if plan is None else plan.with_purposes({device: "sizes"})


def with_chunk(plan: DevicePlan, size: int) -> DevicePlan:
    """Return `plan` with a chunk of `size` units, and a smaller rest, in place of its middle.

    Unchanged if that is more than half of the share.
    """
    chunks = list(plan.chunks)
    if 2 * size > plan.share:
        return plan
    start = end = len(chunks) // 2
    while sum(chunks[start:end]) < size:
        if end < len(chunks):
            end += 1
        else:
            start -= 1
    rest = sum(chunks[start:end]) - size
    chunks[start:end] = [size, rest] if rest else [size]
    return replace(plan, sub_distributions=(tuple(chunks),))


# ---- what is said of them


def explained(
    plan: JobPlan, now: Situation, trials: Sequence[Trial], tried: Trial | None = None
) -> JobPlan:
    weighed = []
    for trial in trials:
        gain = now.horizon * trial.option.saved(now.seconds)
        cost = gain - now.value(trial)
        weighed.append(WeighedOption(trial.what, gain, cost, trial is tried))
    what, chosen = "", now.present
    if tried is not None:
        what, chosen = tried.what, tried.device_set or now.present
    reasons = (*plan.reasons, *filter(None, [what]), *_absent(now, chosen, trials, tried))
    return replace(plan, trial=what, weighed=tuple(weighed), reasons=reasons)


def _absent(
    now: Situation, chosen: DeviceSet, trials: Sequence[Trial], tried: Trial | None
) -> Iterator[str]:
    for device, candidate in now.candidates.items():
        if device in chosen.names:
            continue
        team = next((info.name for info in chosen.infos if device in info.members), None)
        with_it = [t for t in trials if t.device_set is not None and device in t.device_set.names]
        if tried is not None and tried.device_set is chosen:
            why = f"tried is {tried.what}"
        elif team is not None:
            why = f"{team} finishes sooner"
        elif candidate.info.members and not with_it:
            why = "its cores must be measured first"
        elif candidate.info.members and not any(trial.is_known for trial in with_it):
            why = "what it may gain doesn't repay a trial"
        else:
            why = f"the job is faster with {chosen.label} only"
        yield f"{device}: no share, {why}"
