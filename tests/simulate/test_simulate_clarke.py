"""Clarke, Lastovetsky & Rychkov 2011: the four machines, before and beyond their memory."""

from __future__ import annotations

import pytest

from hetsched.errors import UsageError
from hetsched.simulate.papers import clarke
from hetsched.simulate.papers.clarke import MAX_RUNS, ClarkeOutcome, ClarkeSetting, balance

METHODS = ("constant", "geometric", "smooth", "dfpa")


@pytest.fixture(scope="module")
def swept() -> dict[str, list[ClarkeOutcome]]:
    """All 72 settings under each method; "limited": geometric with known limits."""
    outcomes = {
        method: [balance(setting, method) for setting in clarke.all_settings()]
        for method in ("constant", "geometric", "smooth")
    }
    outcomes["limited"] = [
        balance(setting, "geometric", limited=True) for setting in clarke.all_settings()
    ]
    return outcomes


@pytest.mark.parametrize("method", METHODS)
def test_within_memory_every_method_needs_two_runs(method: str) -> None:
    outcome = balance(ClarkeSetting(8000), method)

    assert [run.shares for run in outcome.trace.runs][1:] == [(2149, 1791, 2030, 2030)]
    assert outcome.trace.balanced
    assert outcome.pages == ()


def test_constant_models_send_the_same_rows_back_and_forth() -> None:
    outcome = balance(ClarkeSetting(11000), "constant", forgets_runs=True, max_runs=12)
    shares = [run.shares for run in outcome.trace.runs]

    assert outcome.near is None
    assert min(outcome.ratios) == pytest.approx(1.83, abs=0.01)
    assert shares[3:9:2] == [shares[3]] * 3
    assert shares[4:10:2] == [shares[4]] * 3
    assert shares[4][0] - shares[3][0] == 3740
    assert outcome.trace.moved_units()[-1] * 8 * 11000 == pytest.approx(329e6, rel=0.001)


def test_oscillation_ends_if_runs_are_remembered() -> None:
    trace = balance(ClarkeSetting(11000), "constant").trace

    assert trace.reason.endswith("seen before")
    assert trace.final == trace.best


def test_geometric_pages_in_run_8_and_is_near_the_optimum_in_9_as_in_the_paper() -> None:
    outcome = balance(ClarkeSetting(11000), "geometric")

    assert clarke.optimum(ClarkeSetting(11000)).shares == (2526, 2526, 2974, 2974)
    assert outcome.near == 7
    assert outcome.pages[:2] == (1, 8)
    assert outcome.ratios[8] < clarke.MAX_NEAR_RATIO


def test_smooth_is_near_the_optimum_in_run_7_as_in_the_paper() -> None:
    assert balance(ClarkeSetting(12000), "smooth").near == 7


def test_there_are_72_settings() -> None:
    assert len(set(clarke.all_settings())) == 72


def test_geometric_is_near_the_optimum_within_9_runs_in_every_setting(
    swept: dict[str, list[ClarkeOutcome]],
) -> None:
    assert [
        outcome for outcome in swept["geometric"] if outcome.near is None or outcome.near > 9
    ] == []


def test_smooth_is_near_the_optimum_within_12_runs(swept: dict[str, list[ClarkeOutcome]]) -> None:
    assert (
        sum(outcome.near is not None and outcome.near <= 12 for outcome in swept["smooth"]) >= 70
    )


def test_constant_is_never_near_the_optimum(swept: dict[str, list[ClarkeOutcome]]) -> None:
    assert [outcome for outcome in swept["constant"] if outcome.near is not None] == []


def test_loops_that_find_no_balance_end_with_the_best_that_they_measured(
    swept: dict[str, list[ClarkeOutcome]],
) -> None:
    for outcome in (*swept["geometric"], *swept["smooth"], *swept["constant"]):
        assert len(outcome.trace.runs) < MAX_RUNS
        if outcome.trace.reason != "balanced":
            assert outcome.trace.final.makespan == outcome.trace.best.makespan


def test_with_known_limits_two_runs_do_and_no_machine_pages(
    swept: dict[str, list[ClarkeOutcome]],
) -> None:
    for outcome in swept["limited"]:
        assert outcome.near is not None
        assert outcome.near <= 2
        assert len(outcome.trace.runs) <= 2
        assert outcome.pages == ()


@pytest.mark.parametrize("rows", [11000, 12000])
@pytest.mark.parametrize("method", ["geometric", "smooth"])
def test_it_doesnt_matter_whether_time_or_speed_is_linear(method: str, rows: int) -> None:
    near = balance(ClarkeSetting(rows, linear="speed"), method).near

    assert near is not None
    assert near <= 9


@pytest.mark.parametrize(
    ("setting", "message"),
    [
        (ClarkeSetting(3), "rows: 3 must be 4 to 100000"),
        (ClarkeSetting(10**6), "rows: 1000000"),
        (ClarkeSetting(8000, reserve=256.0), "reserve: 256 MiB"),
        (ClarkeSetting(8000, reserve=-1.0), "reserve: -1 MiB"),
        (ClarkeSetting(8000, reserve=float("nan")), "reserve: nan MiB"),
        (ClarkeSetting(8000, factor=0.1), "factor"),
        (ClarkeSetting(8000, width=-0.1), "width"),
    ],
)
def test_impossible_settings_are_refused(setting: ClarkeSetting, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        balance(setting, "geometric")


def test_the_report_is_compared_with_the_paper() -> None:
    result = clarke.run_experiment((11000,))
    table, by_run = result.tables

    rows = {row[1]: dict(zip(table.columns, row, strict=True)) for row in table.rows}
    assert rows["constant"]["near in run"] == "never"
    assert rows["constant"]["paper"] == "never, 300 MB a run"
    assert rows["geometric"]["paper"] == "9, pages in 8"
    assert rows["limits known"]["that page"] == 0
    assert dict(zip(by_run.columns, by_run.rows[7], strict=True))["pages"] == "P1"
    assert [chart.title for chart in result.charts] == ["11000 rows", "11000 rows, geometric"]


def test_another_setting_isnt_the_papers() -> None:
    table = clarke.run_experiment((8000,), like=ClarkeSetting(8000, reserve=40.0)).tables[0]

    assert {row[table.columns.index("paper")] for row in table.rows} == {None}
