from dataclasses import replace

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from planner_devices import FAST, MIB, PLANE, core, demand, gpu, units

from hetsched.explain import Explanation
from hetsched.models import DeviceModel
from hetsched.planner.assignment import MAX_CORE_CHUNKS, chunk_count
from hetsched.planner.explanation import explain_job
from hetsched.planner.job_planner import plan_job
from hetsched.planner.records import Candidate, JobPlan
from hetsched.plans import DevicePlan, Mode, Overlap, check, timeline
from hetsched.plans.slots import slotted


def test_a_measured_device_with_a_link_gets_a_ring() -> None:
    plan = plan_job(256, [gpu(FAST), *(core(i, 2.1e-3) for i in range(8))])
    assignment = plan.assignments[0]
    assert assignment.plan.slots > 0
    assert assignment.slots == assignment.plan.slots >= 2
    assert assignment.window == assignment.slots + 1
    assert assignment.slot_memory == sum(assignment.slot_sizes) * 2 * PLANE <= 64 * MIB
    assert assignment.predicted_seconds is not None
    cost = timeline(assignment.plan, FAST, Overlap.FULL).makespan
    assert assignment.predicted_seconds == pytest.approx(cost, rel=0.05)
    assert plan.predicted_seconds == pytest.approx(39.9e-3, rel=0.02)


def test_the_last_chunks_are_kept_unless_others_gain_a_percent() -> None:
    plain = gpu(FAST, memory=1 << 40)
    (best,) = plan_job(64, [plain]).assignments
    chunks = list(best.plan.chunks)
    chunks[3], chunks[4] = chunks[3] + 1, chunks[4] - 1
    as_good, slow = (
        DevicePlan((tuple(sizes),), Mode.RING, best.slots) for sizes in (chunks, (32, 32))
    )
    for last, is_kept in ((as_good, True), (slow, False)):
        (again,) = plan_job(64, [replace(plain, last_plan=last)]).assignments
        assert (again.plan == last) is is_kept


def test_chunks_from_files_are_small() -> None:
    (assignment,) = plan_job(100, [replace(core(0, 1e-5), is_staged=True)]).assignments
    assert assignment.max_chunk * 2 * PLANE <= 16 * MIB
    big = replace(core(0), is_staged=True, demand=demand(plane=100 * MIB))
    assert plan_job(5, [big]).assignments[0].max_chunk == 1


candidates = st.lists(
    st.one_of(
        st.builds(core, st.integers(0, 99), st.floats(1e-4, 1e-2)),
        st.builds(core, st.integers(100, 199), st.none()),
        st.just(gpu(FAST)),
        st.just(gpu(None, memory=9 * 2 * PLANE)),
    ),
    min_size=1,
    max_size=8,
    unique_by=lambda candidate: candidate.info.name,
)


@given(st.integers(1, 700), candidates)
def test_every_unit_is_in_exactly_one_chunk_and_every_plan_fits(
    load: int, devices: list[Candidate]
) -> None:
    plan = plan_job(load, devices)
    assert units(plan) == list(range(load))
    ids = [chunk.id for a in plan.assignments for chunk in a.chunks]
    assert len(ids) == len(set(ids))
    by_name = {candidate.info.name: candidate for candidate in devices}
    for assignment in plan.assignments:
        assert tuple(chunk.count for chunk in assignment.chunks) == assignment.plan.chunks
        assert assignment.max_chunk == max(assignment.plan.chunks)
        assert assignment.slots <= len(assignment.chunks)
        candidate = by_name[assignment.device]
        if candidate.info.link:
            check(assignment.plan, slotted(candidate.demand))


@pytest.mark.parametrize("model", [None, FAST])
@pytest.mark.parametrize("plane", [1000, PLANE, 100 * MIB])
def test_files_pass_through_host_buffers_of_64_mib(model: DeviceModel | None, plane: int) -> None:
    load = (2 << 30) // plane
    candidate = replace(gpu(model, memory=64 << 30, plane=plane), is_staged=True)
    (assignment,) = plan_job(load, [candidate]).assignments
    assert assignment.plan.share == load
    assert assignment.slots * assignment.max_chunk * 2 * plane <= max(64 * MIB, 2 * plane)


def test_the_first_chunks_of_a_core_have_64_mib_at_most() -> None:
    (assignment,) = plan_job(50, [replace(core(), demand=demand(plane=16 * MIB))]).assignments
    assert assignment.max_chunk == 2
    (assignment,) = plan_job(5, [replace(core(), demand=demand(plane=160 * MIB))]).assignments
    assert assignment.max_chunk == 1


# ---- chunks of cores


def hosted(
    index: int, seconds: float | None = 1e-3, process: str = "cpu", call: float = 0.0
) -> Candidate:
    """A core whose process drives others, too; `call`: what a call of its kernel costs."""
    plain = core(index, seconds)
    model = plain.models["fft"]
    if model is not None and call:
        model = replace(model, call_seconds=call)
    info = msgspec.structs.replace(plain.info, tail_group=process)
    return replace(plain, info=info, models={"fft": model})


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


def test_explain_says_what_a_call_costs_and_how_much_calls_take() -> None:
    plans = [plan_job(4096, [hosted(0, 1.3e-3, call=call)]) for call in (0.0546, 0.0)]
    dear, cheap = (
        explain_job(Explanation(job=None, state="planned", workload="blas", load=4096), p)
        for p in plans
    )
    assert dear.devices[0].call_reason == (
        "each call of the kernel costs 54.6 ms; 5 calls take 5.1 % of its time, with chunks of"
        " up to 1 s"
    )
    assert cheap.devices[0].call_reason == ""


# ---- the shared tail


def tail_units(plan: JobPlan) -> list[int]:
    tails = {(a.tail.first, a.tail.units) for a in plan.assignments if a.tail is not None}
    return [unit for first, count in sorted(tails) for unit in range(first, first + count)]


def test_a_quarter_of_the_shares_is_pooled_behind_all_others() -> None:
    plan = plan_job(256, [hosted(0, 1e-3), hosted(1, 3e-3)])
    assert [a.plan.share for a in plan.assignments] == [192, 64]
    assert [a.own_units for a in plan.assignments] == [144, 48]
    assert units(plan) == list(range(192))
    assert tail_units(plan) == list(range(192, 256))
    fast, slow = (a.tail for a in plan.assignments)
    assert fast is not None
    assert slow is not None
    assert (fast.weight, slow.weight) == pytest.approx((0.75, 0.25))
    assert (fast.least, fast.most, slow.least) == (1, 80, 1)


def test_cores_of_different_processes_share_no_tail() -> None:
    plan = plan_job(400, [hosted(i, 1e-3, p) for i, p in enumerate(["a", "a", "b", "b"])])
    firsts = [a.tail.first for a in plan.assignments if a.tail is not None]
    assert firsts[0] == firsts[1] != firsts[2] == firsts[3]
    assert units(plan) + tail_units(plan) == list(range(400))


def test_a_device_with_a_link_a_trial_and_a_single_core_pool_nothing() -> None:
    plan = plan_job(256, [gpu(FAST), hosted(0, 2e-3)])
    assert all(a.tail is None for a in plan.assignments)
    explorer = replace(hosted(1), models={"new": None}, run_counts={"new": 0})
    plan = plan_job(64, [hosted(0), explorer])
    assert all(a.tail is None for a in plan.assignments)


def test_the_number_of_expected_takes_is_bounded_in_a_job_of_weeks() -> None:
    plan = plan_job(10**10, [hosted(i) for i in range(2)])
    assert all(len(a.plan.chunks) < 2 * MAX_CORE_CHUNKS for a in plan.assignments)
    assert plan.load == 10**10


@pytest.mark.parametrize(("call", "least"), [(0.0, {1}), (0.01, {28}), (0.055, set())])
def test_the_takes_of_a_tail_are_worth_their_calls_or_there_is_none(
    call: float, least: set[int]
) -> None:
    plan = plan_job(8192, [hosted(n, 5.9 / 4096, call=call) for n in range(2)])
    assert {a.tail.least for a in plan.assignments if a.tail is not None} == least
