"""Probes of devices that the plan leaves out: which, how many units, and whose."""

from __future__ import annotations

from dataclasses import replace

import pytest

from hetsched.device import DeviceInfo
from hetsched.memory import MemoryDemand
from hetsched.models import Affine, DeviceModel
from hetsched.models.evidence.probe_state import ProbeState
from hetsched.planner.job_planner import Candidate, JobPlan, plan_job
from hetsched.planner.rebalancing.probes import PlannedProbe, choose_probes, shares_with_probes
from hetsched.planner.rebalancing.rebalancer import Rebalancer

NAMES = ("cpu0", "cpu1", "cpu2")
DUE = {"cpu2": ProbeState(1)}


def cores(*paces: float, runs: int = 9) -> list[Candidate]:
    """Unlike cores that take so many seconds per unit."""
    return [
        Candidate(
            info=DeviceInfo(name=name, kind="cpu", identity=name),
            demand=MemoryDemand(input_bytes=1, work_bytes=0, output_bytes=1),
            models={"numpy": DeviceModel(Affine(0.0, pace), Affine(0.0, pace))},
            run_counts={"numpy": runs},
        )
        for name, pace in zip(NAMES, paces, strict=False)
    ]


def probes(
    load: int, candidates: list[Candidate], **states: ProbeState
) -> tuple[PlannedProbe, ...]:
    return choose_probes(plan_job(load, candidates), candidates, states)


def test_a_device_is_probed_when_its_turn_comes() -> None:
    candidates = cores(1, 1, 6)

    assert probes(8, candidates) == ()
    assert probes(8, candidates, **DUE) == (PlannedProbe("cpu2", 1, "no share in the last 1 run"),)


def test_one_of_few_runs_is_always_probed() -> None:
    candidates = cores(1, 1, 100)
    candidates[2] = replace(candidates[2], run_counts={"numpy": 2})

    assert probes(8, candidates) == (PlannedProbe("cpu2", 1, "fewer than 3 runs measured"),)


@pytest.mark.parametrize(("pace", "expected"), [(6.0, 1), (6.1, 0)])
def test_a_single_unit_may_make_the_job_take_half_as_long_again(
    pace: float, expected: int
) -> None:
    assert len(probes(8, cores(1, 1, pace), **DUE)) == expected


def test_more_units_take_at_most_a_hundredth_of_the_job() -> None:
    plan = plan_job(10_000, cores(1, 1, 1e9))
    plan = replace(plan, curves={**plan.curves, "cpu2": Affine(2.0, 3.0)})

    (probe,) = choose_probes(plan, cores(1, 1, 3), DUE)

    assert probe.units == 16  # in 50 s of 5000; 32 would take 98


def test_units_are_taken_from_all_others_in_proportion() -> None:
    plan = plan_job(3000, cores(1, 2, 1e9))

    shares = shares_with_probes(plan, [PlannedProbe("cpu2", 30, "")])

    assert shares == {"cpu0": 1980, "cpu1": 990, "cpu2": 30}


def test_the_only_unit_of_a_job_may_be_the_probe() -> None:
    plan = plan_job(1, cores(1, 1.4))

    (probe,) = choose_probes(plan, cores(1, 1.4), {"cpu1": ProbeState(1)})

    assert shares_with_probes(plan, [probe])["cpu1"] == 1
    assert shares_with_probes(plan, [probe])["cpu0"] == 0


def test_a_device_that_does_the_whole_job_is_not_probed() -> None:
    candidates = cores(1, 100, 100)
    contradicted = ProbeState(idle_runs=1, probes=1, repeats=1, ratio=0.1)

    found = probes(8, candidates, cpu0=contradicted, cpu1=ProbeState(1), cpu2=ProbeState(1))

    assert not {probe.device for probe in found} & {"cpu0"}


def test_a_contradicted_device_is_probed_beside_others_with_a_share() -> None:
    contradicted = ProbeState(idle_runs=1, probes=1, repeats=1, ratio=0.1)

    assert [probe.device for probe in probes(8, cores(1, 2), cpu0=contradicted)] == ["cpu0"]


def run(rebalancer: Rebalancer, beliefs: list[Candidate], *paces: float) -> JobPlan:
    """Plan by `beliefs` and run with these seconds per unit."""
    plan = rebalancer.replan(beliefs) if rebalancer.needs_candidates else rebalancer.repeat()
    pace = dict(zip(NAMES, paces, strict=True))
    seconds = {device: pace[device] * share for device, share in plan.shares.items()}
    rebalancer.report(plan, seconds, max(seconds.values()))
    return plan


def probed(plan: JobPlan) -> list[str]:
    return [assignment.device for assignment in plan.assignments if assignment.is_probe]


def test_the_rebalancer_probes_beside_the_plan_it_keeps() -> None:
    rebalancer = Rebalancer(8, NAMES)

    plans = [run(rebalancer, cores(1, 1, 6), 1, 1, 6) for _ in range(25)]

    assert [i for i, plan in enumerate(plans) if probed(plan)] == [1, 3, 7, 15, 23]
    assert all(plan.shares == {"cpu0": 4, "cpu1": 4} for plan in plans if not plan.has_probes)
    assert plans[1].load == 8
    assert "cpu2: 1 unit as a probe: no share in the last 1 run" in plans[1].reasons
    assert not any(reason.startswith("cpu2: no share") for reason in plans[1].reasons)


def test_a_contradicted_device_is_probed_again_and_then_follows_its_model() -> None:
    rebalancer = Rebalancer(8, NAMES)
    run(rebalancer, cores(1, 1, 6), 1, 1, 1)

    first, second = [run(rebalancer, cores(1, 1, 6), 1, 1, 1) for _ in range(2)]
    third = run(rebalancer, cores(1, 1, 1), 1, 1, 1)
    fourth = run(rebalancer, cores(1, 1, 1), 1, 1, 1)

    assert [probed(plan) for plan in (first, second, third)] == [["cpu2"]] * 3
    assert "took 0.17 times as long as predicted" in " ".join(second.reasons)
    assert not fourth.has_probes
    assert sorted(fourth.shares.values()) == [2, 3, 3]


def test_a_new_process_goes_on_where_the_last_one_was() -> None:
    first = Rebalancer(8, NAMES)
    for _ in range(4):
        run(first, cores(1, 1, 6), 1, 1, 6)
    state = first.probe_states["cpu2"]

    later = [replace(c, probe_state=state) for c in cores(1, 1, 6) if c.info.name == "cpu2"]
    plan = run(Rebalancer(8, NAMES), [*cores(1, 1), *later], 1, 1, 6)

    assert state == ProbeState(idle_runs=1, probes=2)
    assert not plan.has_probes


def test_a_probe_that_costs_too_much_leaves_the_plan_to_be_repeated() -> None:
    rebalancer = Rebalancer(8, NAMES)
    run(rebalancer, cores(1, 1, 60), 1, 1, 60)
    run(rebalancer, cores(1, 1, 60), 1, 1, 60)

    assert not rebalancer.needs_candidates
