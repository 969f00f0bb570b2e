"""Plans for cores, run by the dispatcher in virtual time."""

import itertools
import random
from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks.learning.dispatched import ChunkSeconds, run_dispatched
from hetsched.device import Chunk, DeviceInfo
from hetsched.memory import MemoryDemand
from hetsched.models import DeviceModel, PiecewiseLinear
from hetsched.planner.job_planner import Candidate, JobPlan, plan_job
from hetsched.simulate.machine import ChunkTimings, makespan


def planned(load: int, paces: Sequence[float], group: str = "cpu0") -> JobPlan:
    candidates = []
    for number, pace in enumerate(paces):
        curve = PiecewiseLinear([(100, 100 * pace)] * 5)
        info = DeviceInfo(name=f"cpu{number}", kind="cpu", identity="x", tail_group=group)
        model = DeviceModel(curve, curve)
        demand = MemoryDemand(input_bytes=1, work_bytes=0, output_bytes=1)
        candidates.append(Candidate(info, demand, {"v": model}, {"v": 9}))
    return plan_job(load, candidates)


def at_paces(paces: Sequence[float], units: list[int] | None = None) -> dict[str, ChunkSeconds]:
    """Cores that take so many seconds per unit; `units`: each computed unit is appended."""

    def core(pace: float) -> ChunkSeconds:
        def seconds(chunk: Chunk, start: float) -> float:
            if units is not None:
                units.extend(range(chunk.first, chunk.first + chunk.count))
            return pace * chunk.count

        return seconds

    return {f"cpu{number}": core(pace) for number, pace in enumerate(paces)}


def done(timings: dict[str, ChunkTimings]) -> dict[str, int]:
    return {device: sum(units for units, _ in chunks) for device, chunks in timings.items()}


def test_punctual_cores_take_what_they_pooled() -> None:
    plan = planned(256, [1e-3, 1e-3])

    timings = run_dispatched(plan, at_paces([1e-3, 1e-3]))

    assert abs(done(timings)["cpu0"] - 128) <= 1
    assert makespan(timings) == pytest.approx(0.128, rel=0.01)


def test_a_core_slower_than_planned_takes_less_of_the_tail() -> None:
    paces = [1e-3, 1.3e-3]
    ideal = 256 / sum(1 / pace for pace in paces)

    without = makespan(run_dispatched(planned(256, [1e-3] * 2, ""), at_paces(paces)))
    timings = run_dispatched(planned(256, [1e-3] * 2), at_paces(paces))

    assert without > 1.1 * ideal
    assert makespan(timings) < 1.02 * ideal
    assert done(timings)["cpu0"] > 140


@given(
    st.integers(1, 600),
    st.lists(st.floats(1e-4, 1e-2), min_size=1, max_size=6),
    st.integers(0, 99),
)
def test_every_unit_is_computed_once(load: int, paces: list[float], seed: int) -> None:
    rng = random.Random(seed)
    actual = [pace * rng.uniform(0.3, 3.0) for pace in paces]
    units: list[int] = []

    run_dispatched(planned(load, paces), at_paces(actual, units))

    assert sorted(units) == list(range(load))


def test_chunks_of_a_core_follow_each_other() -> None:
    timings = run_dispatched(planned(256, [1e-3] * 4), at_paces([1e-3, 2e-3, 1e-3, 9e-4]))

    for chunks in timings.values():
        for (_, first), (_, second) in itertools.pairwise(chunks):
            assert second.start >= first.end
