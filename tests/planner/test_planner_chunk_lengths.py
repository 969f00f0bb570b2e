"""How long a core's chunks are where calls of its kernel are expensive."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hetsched.device import DeviceInfo
from hetsched.memory import MemoryDemand
from hetsched.models import Affine, DeviceModel
from hetsched.planner.cores.chunk_lengths import (
    MAX_CALL_FRACTION,
    MAX_COSTLY_CHUNK_SECONDS,
    calls_of,
    chunk_count,
    longest_chunk,
    with_calls,
    with_short_chunks,
)
from hetsched.planner.explanation import ExplainedJob, explain_job
from hetsched.planner.job_planner import plan_job
from hetsched.planner.plan_cache import PlanCache
from hetsched.planner.records import Candidate, JobPlan
from hetsched.planner.tails import CoreShare, plan_tails

UNIT = 1.3e-3


def model(call_units: float, *, variation: float = 0.0, is_settled: bool = True) -> DeviceModel:
    curve = Affine(0.0, UNIT)
    return DeviceModel(
        curve, curve, call_units=call_units, has_settled_calls=is_settled, variation=variation
    )


def plan(load: int, learnt: DeviceModel | None, cores: int = 1) -> JobPlan:
    candidates = [
        Candidate(
            DeviceInfo(name=f"cpu{number}", kind="cpu", identity="core", tail_group="cpu"),
            MemoryDemand(input_bytes=32 << 10, work_bytes=0, output_bytes=32 << 10),
            {"blas": learnt},
            {"blas": 3},
        )
        for number in range(cores)
    ]
    return plan_job(load, candidates)


@pytest.mark.parametrize(
    ("seconds", "call", "chunks"),
    [
        (0.2, 0.0, 4),
        (5.0, 0.0, 62),
        (5.0, 0.0005, 62),  # 0.5 ms of 80
        (5.0, 0.002, 25),  # 2 ms of 200
        (5.0, 0.005, 10),  # 5 ms of 500
        (6.0, 0.055, 6),  # no chunk of more than a second
        (0.5, 0.055, 1),
        (0.01, 0.055, 1),
    ],
)
def test_chunks_are_as_long_as_their_calls_require(
    seconds: float, call: float, chunks: int
) -> None:
    assert chunk_count(seconds, call) == chunks


@given(st.floats(1e-6, 1e4))
def test_the_number_of_chunks_is_that_of_the_calls(seconds: float) -> None:
    assert chunk_count(seconds, 0.0) == round(calls_of(np.array([seconds]), np.zeros(1))[0])


@pytest.mark.parametrize(
    ("seconds", "call", "chunks"), [(0.02, 0.0, 1), (0.08, 0.0, 1), (0.2, 0.0, 2), (1.0, 0.002, 5)]
)
def test_beside_a_tail_chunks_are_as_long_as_they_may_be(
    seconds: float, call: float, chunks: int
) -> None:
    assert chunk_count(seconds, call, has_tail=True) == chunks


def test_a_core_with_a_tail_has_few_chunks_of_its_own() -> None:
    plans = [plan(256, model(0.0, variation=variation), cores=2) for variation in (0.0, 0.1)]
    own = [[len(each.chunks) for each in planned.assignments] for planned in plans]
    assert own == [[4, 4], [2, 2]]  # of 42 ms, and of 62 ms


def test_a_cancel_waits_longer_only_where_calls_are_expensive() -> None:
    assert [longest_chunk(call) for call in (0.0, 0.0005, 0.002, 0.1)] == [0.08, 0.08, 0.2, 1.0]


@given(st.floats(0.0, 0.2), st.floats(0.001, 1e4))
def test_calls_take_their_part_unless_chunks_are_as_long_as_allowed(
    call: float, seconds: float
) -> None:
    count = chunk_count(seconds, call)
    chunk = seconds / count
    limit = max(min(call / MAX_CALL_FRACTION, MAX_COSTLY_CHUNK_SECONDS), 4 * call)
    assert count == 1 or chunk >= limit / 1.5
    assert chunk <= max(0.08, limit) * 1.5


@given(st.floats(0.1, 500.0), st.integers(1, 100_000))
def test_the_predicted_time_is_that_of_the_planned_chunks(call_units: float, share: int) -> None:
    (assignment,) = plan(share, model(call_units)).assignments
    assert assignment.predicted_seconds is not None
    expected = UNIT * (share + call_units * len(assignment.plan.chunks))
    # The number of chunks is rounded, by a third at most.
    slack = UNIT * call_units * max(0.5, 0.02 * len(assignment.plan.chunks))
    assert assignment.predicted_seconds == pytest.approx(expected, rel=0.02, abs=slack)


@given(st.floats(0.1, 500.0), st.floats(1e-9, 1.0))
def test_times_with_calls_rise_and_are_at_least_a_call_longer(
    call_units: float, unit: float
) -> None:
    learnt = DeviceModel(Affine(0.0, unit), Affine(0.0, unit), call_units=call_units)
    units = np.arange(1.0, 3000.0, 7.0)
    seconds = with_calls(learnt, PlanCache()).time(units)
    assert np.all(np.diff(seconds) > 0)
    assert np.all(seconds >= (units + call_units) * unit * (1 - 0.02))


@pytest.mark.parametrize("share", [1, 10, 999, 10**6])
def test_few_units_that_take_long_share_a_call_as_planned(share: int) -> None:
    learnt = DeviceModel(Affine(0.0, 10.0), Affine(0.0, 10.0), call_units=1000.0)
    (assignment,) = plan(share, learnt).assignments
    calls = len(assignment.plan.chunks)
    assert assignment.predicted_seconds == pytest.approx(10.0 * (share + 1000 * calls), rel=0.01)


def test_without_a_cost_the_learnt_curve_is_used_itself() -> None:
    learnt = model(0.0)
    assert with_calls(learnt, PlanCache()) is learnt.total


def test_a_core_with_few_units_is_charged_a_call() -> None:
    (assignment,) = plan(5, model(42.0)).assignments
    assert assignment.predicted_seconds == pytest.approx(47 * UNIT, rel=0.01)


def test_chunks_differ_in_size_until_the_cost_is_settled() -> None:
    (unsettled,) = plan(4096, model(0.0, is_settled=False)).assignments
    (settled,) = plan(4096, model(0.0)).assignments
    sizes = [chunk.count for chunk in unsettled.chunks]
    assert (sum(sizes), len(sizes)) == (4096, len(settled.chunks) + 3)
    assert sizes[0] > 3 * min(sizes)
    assert unsettled.compares_calls and not settled.compares_calls
    starts = [chunk.first for chunk in unsettled.chunks]
    assert starts == [0, *np.cumsum(sizes)[:-1].tolist()]


def test_a_first_share_has_chunks_of_two_sizes() -> None:
    (assignment,) = plan(4096, None).assignments
    sizes = {chunk.count for chunk in assignment.chunks}
    assert max(sizes) > 3 * min(sizes)


@given(st.lists(st.integers(1, 300), min_size=1, max_size=300))
def test_short_chunks_keep_all_units(counts: list[int]) -> None:
    even = tuple(sorted(counts, reverse=True))
    chunks = with_short_chunks(even)
    assert sum(chunks) == sum(even)
    assert chunks == even or (len(chunks) == len(even) + 3 and min(chunks) >= 1)


def share(call: float, variation: float) -> CoreShare:
    return CoreShare("cpu0", "cpu", 4096, 5.9, variation, 350, call)


def test_the_last_chunks_of_a_tail_are_worth_their_calls() -> None:
    cores = [replace(share(0.055, 0.1), name=f"cpu{number}") for number in range(2)]
    parts = plan_tails(cores, 8192)
    assert {part.part.least for part in parts.values()} == {153}  # 0.22 s
    cheap = plan_tails([replace(core, call_seconds=0.0) for core in cores], 8192)
    assert {part.part.least for part in cheap.values()} == {1}


def test_a_tail_that_costs_more_calls_than_it_saves_is_left_out() -> None:
    cores = [replace(share(0.055, 0.02), name=f"cpu{number}") for number in range(2)]
    assert not plan_tails(cores, 8192)
    assert plan_tails([replace(core, call_seconds=0.005) for core in cores], 8192)


def test_explain_says_what_a_call_costs_and_how_much_calls_take() -> None:
    explained = explain_job(ExplainedJob(None, "planned", "blas", 4096), plan(4096, model(42.0)))
    assert explained.devices[0].call_reason == (
        "each call of the kernel costs 54.6 ms; 6 calls take 5.8 % of its time, with chunks of"
        " up to 1 s"
    )
    cheap = explain_job(ExplainedJob(None, "planned", "blas", 4096), plan(4096, model(0.0)))
    assert cheap.devices[0].call_reason == ""
