"""Learning from races of variants: updates of models.db. Runs in the planner's thread."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from hetsched.engine.admission.resolved_job import ResolvedJob
from hetsched.engine.planning.device_run import DeviceRun
from hetsched.engine.planning.next_plan import race_key, race_label
from hetsched.engine.planning.planning_state import PlanningState
from hetsched.models.evidence.races import Race
from hetsched.planner.races.evidence import race_of
from hetsched.store.models.model_store import ModelKey
from hetsched.store.models.race_table import RaceKey


def learn_races(
    job: ResolvedJob,
    runs: Mapping[str, DeviceRun],
    state: PlanningState,
    at: float,
) -> set[RaceKey]:
    """Record the races of a run, one for each kind of core, and return their keys.

    `at`: seconds since the epoch.
    """
    raced: set[RaceKey] = set()
    groups: dict[str, list[DeviceRun]] = {}
    for run in runs.values():
        if run.assignment.rivals and run.chunks and not run.is_merged:
            groups.setdefault(run.info.identity, []).append(run)
    for group in groups.values():
        race = _race(group)
        if race is None:
            continue
        info = group[0].info
        labels = {v.name: race_label(v) for v in state.variants.usable(job, info)}
        paces = {labels[name]: found for name, found in race.paces.items() if name in labels}
        key = race_key(job, info)
        state.store.add_race(key, Race(race.number, race.units, paces), at)
        raced.add(key)
    return raced


def _race(group: list[DeviceRun]) -> Race | None:
    candidates = [run.assignment.candidate for run in group]
    counts = [max(c.run_counts.values(), default=0) for c in candidates if c is not None]
    return race_of(
        max(counts, default=0),
        [run.assignment for run in group],
        {run.assignment.device: run.chunks for run in group},
    )


def note_change(
    key: ModelKey, state: PlanningState, at: float, raced: Collection[RaceKey] = ()
) -> None:
    """Record a change of speed, so that the best variant races again; `at` as above.

    It is confirmed some runs after it: the latest race counts if it is in `raced`, those just run.
    """
    races = state.store.races(key.race_key).races
    if races:
        number = races[-1].number + (key.race_key not in raced)
        state.store.add_race(key.race_key, Race(number, 0.0, {}), at)
