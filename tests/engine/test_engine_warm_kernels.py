"""Which kernels device processes have cached, as the engine knows."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from hetsched.device import DeviceInfo
from hetsched.engine.planning.planning_state import WarmKernels
from hetsched.memory import MemoryDemand
from hetsched.planner.job_planner import plan_job
from hetsched.planner.records import Assignment, Candidate

DEMAND = MemoryDemand(input_bytes=8, work_bytes=0, output_bytes=8)
JOB: Any = SimpleNamespace(reference="toys:Toy", encoded_params=b"{}")


def assignment(largest_chunk: int, *, link: bool = False) -> Assignment:
    memory = 1 << 20 if link else None
    info = DeviceInfo(
        name="x", kind="cuda" if link else "cpu", identity="x", link=link, memory=memory
    )
    candidate = Candidate(info=info, demand=DEMAND, models={"a": None}, run_counts={"a": 0})
    (planned,) = plan_job(4, [candidate]).assignments
    return replace(planned, max_chunk=largest_chunk)


@pytest.mark.parametrize(("link", "is_cached"), [(False, True), (True, False)])
def test_a_core_has_the_kernel_of_chunks_of_almost_the_same_size(
    link: bool, is_cached: bool
) -> None:
    warm = WarmKernels()
    warm.add(JOB, [assignment(1303, link=link)], is_side=False)

    assert warm.contains_all(JOB, [assignment(1448, link=link)], is_side=False) == is_cached


def test_a_core_has_no_kernel_for_chunks_twice_as_large() -> None:
    warm = WarmKernels()
    warm.add(JOB, [assignment(1303)], is_side=False)

    assert not warm.contains_all(JOB, [assignment(2606)], is_side=False)
