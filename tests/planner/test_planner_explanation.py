from __future__ import annotations

import itertools
from dataclasses import replace

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hetsched.device import Chunk, ChunkTimeline, ChunkTimes, DeviceInfo, Timeline
from hetsched.explain import (
    Alternative,
    DeviceExplanation,
    Explanation,
    PhaseSeconds,
    TimeBreakdown,
)
from hetsched.memory import MemoryDemand
from hetsched.models import Affine, DeviceModel, PiecewiseLinear
from hetsched.planner.explanation import (
    explain_job,
    hidden_fraction,
    phase_seconds,
    time_breakdown,
)
from hetsched.planner.job_planner import plan_job
from hetsched.planner.learning import DeviceRun
from hetsched.planner.records import Assignment, Candidate, JobPlan
from hetsched.plans.device_plan import DevicePlan, Mode

SUBJECT = Explanation(job=3, state="done", workload="toy", load=4, params={"batch": "4"})
CORE = DeviceInfo(name="cpu0", kind="cpu", identity="c")
GPU = DeviceInfo(name="gpu0", kind="cuda", identity="g", link=True, memory=4, engines=2)
CORE_MODEL = DeviceModel(PiecewiseLinear([(2, 3.0)]), PiecewiseLinear([(2, 3.0)]))
GPU_MODEL = DeviceModel(PiecewiseLinear(), Affine(0, 1.0), Affine(0, 0.5), Affine(0, 0.5))


def demand(limit: int | None) -> MemoryDemand:
    return MemoryDemand(input_bytes=512, work_bytes=0, output_bytes=512, limit=limit)


def assignment(info: DeviceInfo, model: DeviceModel | None, plan: DevicePlan) -> Assignment:
    candidate = Candidate(info, demand(4096 if info.link else None), {"v": model}, {"v": 7})
    return Assignment(
        device=info.name,
        variant="v",
        plan=plan,
        chunks=tuple(Chunk(k, sum(plan.chunks[:k]), n) for k, n in enumerate(plan.chunks)),
        max_chunk=max(plan.chunks),
        slots=plan.slots or 1,
        slot_memory=2048,
        window=2,
        predicted_seconds=None if model is None else 3.0,
        candidate=candidate,
        model=model,
    )


def job_plan(has_models: bool = True) -> JobPlan:
    core = assignment(CORE, CORE_MODEL if has_models else None, DevicePlan(((1, 1),)))
    gpu = assignment(GPU, GPU_MODEL, DevicePlan(((1, 1),), Mode.RING, 2))
    curves = {"cpu0": CORE_MODEL.total, "gpu0": PiecewiseLinear([(1, 2.0), (2, 3.0)])}
    return JobPlan(
        (core, gpu), 3.0 if has_models else None, ("cpu0: 2 units by guess",), curves=curves
    )


def ran(info: DeviceInfo, *chunks: tuple[int, ChunkTimes]) -> DeviceRun:
    return DeviceRun(assignment(info, None, DevicePlan(((1,),))), info, chunks)


def one(start: float, end: float) -> tuple[int, ChunkTimes]:
    return 1, ChunkTimes(compute=(start, end))


def linked(start: float) -> tuple[int, ChunkTimes]:
    """Half a second in, one of computing, half a second out."""
    marks = [start, start + 0.5, start + 1.5, start + 2.0]
    spans = list(itertools.pairwise(marks))
    return 1, ChunkTimes(copy_in=spans[0], compute=spans[1], copy_out=spans[2])


RAN = {
    "cpu0": ran(CORE, one(100.5, 102.0), one(102.5, 104.0)),
    "gpu0": ran(GPU, linked(100.0), linked(101.0)),
}


def device(explanation: Explanation, name: str) -> DeviceExplanation:
    return next(d for d in explanation.devices if d.device == name)


def test_the_link_s_phases_by_hand() -> None:
    gpu = device(explain_job(SUBJECT, job_plan(), RAN), "gpu0")

    assert gpu.predicted == gpu.measured == PhaseSeconds(copy_in=1.0, compute=2.0, copy_out=1.0)
    assert (gpu.seconds, gpu.predicted_seconds) == (3.0, 3.0)
    assert gpu.hidden == gpu.predicted_hidden == 0.5, "4 s of phases in 3 s, 2 s of them copies"
    assert gpu.time_breakdown == TimeBreakdown(
        computing=2.0, copying=1.0, between=0.0, before=0.0, idle=1.0
    )
    assert gpu.plan is not None and gpu.timeline is not None
    assert gpu.plan.chunks[1] == ChunkTimeline(1, (0.5, 1.0), (1.5, 2.5), (2.5, 3.0))
    assert gpu.timeline.chunks[1] == ChunkTimeline(1, (1.0, 1.5), (1.5, 2.5), (2.5, 3.0))


def test_a_core_s_time_by_hand() -> None:
    explanation = explain_job(SUBJECT, job_plan(), RAN)
    core = device(explanation, "cpu0")

    assert explanation.seconds == 4.0
    assert core.seconds == 3.5
    assert core.time_breakdown == TimeBreakdown(
        computing=3.0, copying=0.0, between=0.5, before=0.5, idle=0.0
    )
    assert core.hidden is None
    assert core.plan == Timeline(
        3.0, (ChunkTimeline(1, None, (0.0, 1.5), None), ChunkTimeline(1, None, (1.5, 3.0), None))
    )


def test_bounds_alternatives_and_changes_by_hand() -> None:
    explanation = explain_job(SUBJECT, job_plan(), RAN)

    # Two units of each device, 3 s by either's curve.
    assert explanation.bound == pytest.approx(3.0)
    assert {way.description: way.seconds for way in explanation.alternatives} == pytest.approx(
        {
            "equal shares": 3.0,
            "only cpu0 (contention as now)": 6.0,
            "only gpu0 (contention as now)": 6.0,
        }
    )
    gpu = device(explanation, "gpu0")
    assert gpu.bound == pytest.approx(3.0)
    assert {way.description for way in gpu.alternatives} == {"multi-installment", "factoring"}
    # A faster link leaves two units to each device, and so does a third device.
    assert [change.saves for change in explanation.what_if] == pytest.approx([0.0, 0.0, 0.0])


def test_virtual_clocks_all_start_at_their_first_chunk() -> None:
    info = DeviceInfo(name="cpu0", kind="emulated", identity="c", clock="virtual")
    runs = {"cpu0": ran(info, one(7.0, 8.0)), "gpu0": ran(GPU, linked(0.25))}

    explanation = explain_job(SUBJECT, job_plan(), runs)

    assert explanation.seconds == 2.0
    starts = {
        d.device: d.time_breakdown.before
        for d in explanation.devices
        if d.time_breakdown is not None
    }
    assert starts == {"cpu0": 0.0, "gpu0": 0.0}


def test_a_plan_has_no_measurements() -> None:
    explanation = explain_job(
        msgspec.structs.replace(SUBJECT, job=None, state="planned"), job_plan()
    )

    assert explanation.seconds is None
    assert all(d.time_breakdown is d.measured is d.timeline is None for d in explanation.devices)
    assert explanation.predicted_seconds == 3.0


def test_without_a_model_there_is_no_prediction_and_no_bound() -> None:
    explanation = explain_job(SUBJECT, job_plan(has_models=False), RAN)

    assert (explanation.bound, explanation.what_if) == (None, ())
    core = device(explanation, "cpu0")
    assert (core.runs, core.predicted, core.plan) == (None, None, None)
    assert core.measured == PhaseSeconds(compute=3.0)


def test_a_device_alone_is_predicted_by_its_runs_without_the_others() -> None:
    alone = DeviceModel(*[PiecewiseLinear([(4, 3.0)])] * 2)
    plan = job_plan()
    core = next(a for a in plan.assignments if a.device == "cpu0")
    candidate = Candidate(
        CORE,
        demand(None),
        {core.variant: CORE_MODEL},
        {core.variant: 3},
        models_beside={"all": {core.variant: CORE_MODEL}, "none": {core.variant: alone}},
    )
    assignments = tuple(
        replace(a, candidate=candidate) if a is core else a for a in plan.assignments
    )

    explanation = explain_job(SUBJECT, replace(plan, assignments=assignments), RAN)

    assert Alternative("only cpu0", pytest.approx(3.0)) in explanation.alternatives


def test_a_device_without_a_share_may_never_have_run_one() -> None:
    slow = replace(GPU_MODEL, compute=Affine(900.0, 1.0), total=PiecewiseLinear())
    candidates = [
        Candidate(CORE, demand(None), {"v": CORE_MODEL}, {"v": 7}),
        Candidate(GPU, demand(4096), {"v": slow}, {"v": 7}),
    ]
    explanation = explain_job(SUBJECT, plan_job(4, candidates))
    assert [d.device for d in explanation.devices] == ["cpu0"]
    assert explanation.bound is not None
    assert explanation.what_if


spans = st.lists(
    st.tuples(st.integers(0, 50), st.integers(0, 20)).map(lambda span: (span[0], sum(span))),
    min_size=1,
    max_size=12,
)


@given(spans, st.integers(0, 30))
def test_a_time_breakdown_sums_to_the_time_of_the_job(
    intervals: list[tuple[int, int]], extra: int
) -> None:
    chunks = tuple(ChunkTimeline(1, (a, b), (b, b + 3), (b + 4, b + 5)) for a, b in intervals)
    line = Timeline(max(c.copy_out[1] for c in chunks if c.copy_out), chunks)
    parts = time_breakdown(line, line.makespan + extra)
    total = parts.computing + parts.copying + parts.between + parts.before + parts.idle
    assert total == line.makespan + extra
    assert min(parts.computing, parts.copying, parts.between, parts.before, parts.idle) >= 0
    hidden = hidden_fraction(line)
    assert hidden is not None and 0 <= hidden <= 1
    assert phase_seconds(line).compute == 3 * len(chunks)
