"""The planner and the models learn simulated machines from nothing; `benchmarks.learning`."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from itertools import pairwise

import pytest

from benchmarks.learning import Verdict, co_runners, cores, kernels
from benchmarks.learning.__main__ import FAMILIES
from hetsched.simulate.machine import ideal_plan, learn, makespan


def missed(verdicts: Iterable[Verdict]) -> list[tuple[str, ...]]:
    return [verdict.cells() for verdict in verdicts if not verdict.holds]


@pytest.mark.parametrize("family", ["variants", "tail", "calls", "changes"])
def test_bars_hold_with_one_seed(family: str) -> None:
    assert missed(FAMILIES[family](1)) == []


@pytest.mark.parametrize(
    "case", [*kernels.CASES[1:6:2], kernels.CASES[8]], ids=lambda case: case.name
)
def test_the_plan_of_a_kernel_with_steps_is_near_the_best_from_run_6_on(
    case: kernels.Case,
) -> None:
    assert missed(kernels.kernels(1, [case], runs=20)) == []


def test_sizes_beyond_large_steps_are_remembered_though_measured_once() -> None:
    (case,) = (each for each in kernels.CASES if "random steps 10," in each.name)
    assert missed(kernels.kernels(2, [case], runs=8)) == []


@pytest.mark.parametrize("case", [kernels.CASES[1], kernels.CASES[3]], ids=lambda case: case.name)
def test_the_steps_of_a_kernel_are_known_while_it_is_slower_and_afterwards(
    case: kernels.Case,
) -> None:
    slower = kernels.Kernel("slower", lambda x: 1.5 * case.kernel.seconds(x))
    usual, slow = case.machine(), replace(case, kernel=slower).machine()
    machines = [usual] * 20 + [slow] * 5 + [usual] * 10
    runs = learn(usual, len(machines), kernels.NOISE, 0, machine_in=machines.__getitem__)

    best = {id(each): makespan(each.play(ideal_plan(each))) for each in (usual, slow)}
    ratios = [run.noiseless / best[id(m)] for run, m in zip(runs, machines, strict=True)]
    assert max(ratios[20:]) <= 1.10


@pytest.mark.parametrize("number", [0, 1, 8, 9])
def test_the_best_set_of_devices_is_found_and_the_search_costs_little(number: int) -> None:
    assert missed(co_runners.co_runners(1, [co_runners.CASES[number]], runs=16)) == []


@pytest.mark.parametrize("are_equal", [False, True])
def test_a_split_is_kept_in_noise(are_equal: bool) -> None:
    runs = learn(cores.noisy_machine(0, are_equal), 100, 0.0, 0)[5:]

    usual = [run.plan.shares for run in runs if not run.plan.trial]
    assert sum(before != after for before, after in pairwise(usual)) <= 0.08 * len(runs)


@pytest.mark.stress
@pytest.mark.parametrize("family", FAMILIES)
def test_bars_hold_with_three_seeds(family: str) -> None:
    assert missed(FAMILIES[family](3)) == []


def test_a_device_regains_its_pace_when_its_neighbour_is_done() -> None:
    kept = {"gpu0": 0.5, "cpu0": 1.0}

    progress = co_runners.progress_of(
        {"gpu0": 3.0, "cpu0": 2.0}, lambda device, others: kept[device] if others else 1.0
    )

    assert progress["cpu0"] == [(0.0, 0.0), (2.0, 2.0)]
    assert progress["gpu0"] == [(0.0, 0.0), (2.0, 1.0), (4.0, 3.0)]
