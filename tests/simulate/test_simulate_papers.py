from __future__ import annotations

import pytest

from hetsched.plans import Overlap, check
from hetsched.simulate.machine import ideal_plan, makespan
from hetsched.simulate.papers import clarke, ilic, nec

ILIC_MACHINES = [
    ilic.IlicSetting(overlap, cliff)
    for overlap in (Overlap.SINGLE, Overlap.FULL)
    for cliff in (True, False)
]


def test_constant_models_send_the_same_rows_back_and_forth() -> None:
    setting = clarke.ClarkeSetting(11000)
    outcome = clarke.balance(setting, "constant", forgets_runs=True, max_runs=12)
    shares = [run.shares for run in outcome.runs]

    assert (shares[3], shares[4]) == (shares[7], shares[8])
    assert shares[4][0] - shares[3][0] == 3740
    assert clarke.balance(setting, "constant").reason.endswith("seen before")


@pytest.mark.parametrize("rows", [11000, 12000])
@pytest.mark.parametrize("method", ["geometric", "smooth"])
def test_it_doesnt_matter_whether_time_or_speed_is_linear(method: str, rows: int) -> None:
    trace = clarke.balance(clarke.ClarkeSetting(rows, linear="speed"), method)
    assert trace.first_within(clarke.MAX_NEAR_RATIO) in range(1, 10)


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_every_rule_of_nec_ends_near_the_optimum(seed: int) -> None:
    case = nec.random_cluster(16, seed)
    for rule in nec.rules_for(16).values():
        assert nec.balance(case, rule).ratio <= 1.15


@pytest.mark.parametrize("setting", ILIC_MACHINES)
def test_best_plans_are_better_than_the_paper_s_and_near_their_bound(
    setting: ilic.IlicSetting,
) -> None:
    machine = ilic.machine(setting)
    plan = ideal_plan(machine)
    seconds = makespan(machine.play(plan))
    paper = ilic.run_paper_steps(setting)

    assert seconds < 0.2918  # the best that the reference knew with installments
    assert seconds < paper.trace.final.makespan
    assert machine.bound() <= seconds <= 1.03 * machine.bound()
    for step in paper.steps:
        check(step.plan, ilic.MEMORY)
        assert 1 < step.overlap_gain <= (2 if setting.overlap is Overlap.SINGLE else 3)
    check(plan.assignments[0].plan, ilic.MEMORY)
