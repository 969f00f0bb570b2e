"""Short shares of the cores of one process are sent, and reported, as a whole."""

from __future__ import annotations

from dataclasses import replace

import msgspec
import pytest
from planner_devices import FAST, core, gpu

from hetsched.planner.cores.sent_at_once import MAX_SECONDS, MAX_SHARE_SECONDS, sent_at_once
from hetsched.planner.job_planner import Candidate, JobPlan, plan_job

UNIT_SECONDS = 1e-3


def hosted(
    index: int,
    seconds: float | None = UNIT_SECONDS,
    process: str = "cpu",
    variation: float = 0.0,
) -> Candidate:
    candidate = core(index, seconds)
    model = candidate.models["fft"]
    varying = None if model is None else replace(model, variation=variation)
    info = msgspec.structs.replace(candidate.info, tail_group=process)
    return replace(candidate, info=info, models={"fft": varying})


def windows(plan: JobPlan) -> list[bool]:
    """Of each assignment: whether all its chunks are sent at once."""
    return [each.window >= len(each.chunks) for each in plan.assignments]


def test_short_shares_of_cores_are_sent_at_once() -> None:
    plan = plan_job(300, [hosted(0), hosted(1)])

    assert windows(plan) == [True] * 2
    assert min(len(each.chunks) for each in plan.assignments) > 2


@pytest.mark.parametrize(
    "candidates",
    [
        [hosted(0), gpu(FAST)],
        [hosted(0), hosted(1, process="other")],
        [hosted(0, process=""), hosted(1, process="")],
        [hosted(0, None), hosted(1, None)],
    ],
    ids=["a GPU", "two processes", "processes of their own", "no measurements"],
)
def test_chunks_wait_in_the_engine_if_others_may_steal_them(candidates: list[Candidate]) -> None:
    assert not all(windows(plan_job(300, candidates)))


def test_long_shares_are_sent_chunk_by_chunk() -> None:
    load = int(2.2 * MAX_SECONDS / UNIT_SECONDS)

    assert windows(plan_job(load, [hosted(0), hosted(1)])) == [False] * 2


@pytest.mark.parametrize(
    ("variation", "seconds", "is_sent"),
    [(0.13, 0.6, True), (0.02, 0.6, False), (0.4, 0.9 * MAX_SHARE_SECONDS, True),
     (0.4, 1.1 * MAX_SHARE_SECONDS, False)],
    ids=["a third in the tail", "a tail too short", "half in the tail", "too long"],
)  # fmt: skip
def test_a_tail_makes_up_for_a_core_at_half_its_speed(
    variation: float, seconds: float, is_sent: bool
) -> None:
    cores = [hosted(index, variation=variation) for index in range(2)]

    plan = plan_job(int(2 * seconds / UNIT_SECONDS), cores)

    assert all(each.pooled for each in plan.assignments)
    assert windows(plan) == [is_sent] * 2


def test_a_race_is_reported_chunk_by_chunk() -> None:
    assignments = plan_job(300, [hosted(0), hosted(1)]).assignments
    plain = [replace(each, window=2) for each in assignments]
    racing = [replace(plain[0], rivals=("other",)), plain[1]]

    assert sent_at_once(racing) == tuple(racing)
