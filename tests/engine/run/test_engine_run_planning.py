"""Jobs don't wait for the processes of devices that only later jobs need."""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Sequence
from types import SimpleNamespace
from typing import Any

import pytest

from hetsched.device import DeviceInfo
from hetsched.engine.planning import run_planner as planning
from hetsched.engine.planning.run_planner import JobPlanning
from hetsched.errors import Unavailable
from hetsched.job import JobSpec
from hetsched.planner.device_sets.teams import START_SECONDS
from hetsched.planner.job_planner import JobPlan

CORE = DeviceInfo(name="cpu0", kind="cpu", identity="x")
TEAM = DeviceInfo(name="team0", kind="cpu", identity="x", members=("cpu0", "cpu1"))
SHORT, LONG = 0.1 * START_SECONDS, 3 * START_SECONDS


def plan_of(device: str, seconds: float | None) -> Any:
    assignment = SimpleNamespace(device=device, chunks=(1,))
    return SimpleNamespace(assignments=(assignment,), predicted_seconds=seconds)


class Planners:
    """Planners that choose the team where they may; `seconds`: of each device's plan."""

    def __init__(self, **seconds: float | None) -> None:
        self.seconds = seconds
        self.planned: list[list[str]] = []

    def __call__(self, job: Any, infos: Sequence[DeviceInfo], *_: Any) -> Any:
        async def planned() -> JobPlan:
            self.planned.append([info.name for info in infos])
            chosen = infos[-1].name
            if chosen in self.seconds:
                return plan_of(chosen, self.seconds[chosen])
            raise Unavailable("no variant")

        return SimpleNamespace(plan=planned)


class TeamFleet:
    """A fleet with a core and a team that isn't running, or is starting."""

    def __init__(self, *, is_starting: bool = False) -> None:
        self.is_starting = is_starting
        self.started: list[str] = []

    def unstarted(self) -> set[str]:
        return {"team0"}

    def starting_ahead(self) -> set[str]:
        return {"team0"} if self.is_starting else set()

    def start_ahead(self, devices: Collection[str]) -> None:
        self.started += devices


def planned(
    monkeypatch: pytest.MonkeyPatch,
    planners: Planners,
    fleet: TeamFleet,
    *infos: DeviceInfo,
    **settings: Any,
) -> JobPlan:
    monkeypatch.setattr(planning, "RunPlanner", planners)
    running: Any = SimpleNamespace(
        job=SimpleNamespace(measure=settings.get("measure")),
        spec=JobSpec(workload="w", params={}),
        context=SimpleNamespace(fleet=fleet, memory_limit=None),
        iterations=None,
    )
    return asyncio.run(JobPlanning(running).plan(infos or (CORE, TEAM)))


def device(plan: JobPlan) -> str:
    return plan.assignments[0].device


@pytest.mark.parametrize("seconds", [SHORT / 2, None])
def test_a_job_runs_on_its_cores_while_the_team_starts(
    monkeypatch: pytest.MonkeyPatch, seconds: float | None
) -> None:
    planners, fleet = Planners(cpu0=SHORT, team0=seconds), TeamFleet()

    assert device(planned(monkeypatch, planners, fleet)) == "cpu0"
    assert fleet.started == ["team0"]


def test_a_job_waits_for_a_team_that_repays_its_start(monkeypatch: pytest.MonkeyPatch) -> None:
    planners, fleet = Planners(cpu0=LONG, team0=LONG - START_SECONDS), TeamFleet()

    assert device(planned(monkeypatch, planners, fleet)) == "team0"
    assert fleet.started == [], "the job itself starts it"


def test_a_team_that_is_starting_is_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    planners, fleet = Planners(cpu0=LONG, team0=SHORT), TeamFleet(is_starting=True)

    assert device(planned(monkeypatch, planners, fleet)) == "cpu0"
    assert planners.planned == [["cpu0"]]


@pytest.mark.parametrize("is_starting", [False, True])
def test_a_job_for_the_team_alone_waits_for_it(
    monkeypatch: pytest.MonkeyPatch, is_starting: bool
) -> None:
    fleet = TeamFleet(is_starting=is_starting)

    assert device(planned(monkeypatch, Planners(team0=SHORT), fleet, TEAM)) == "team0"
    assert fleet.started == []
