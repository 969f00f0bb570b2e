"""Clarke, Lastovetsky & Rychkov 2011: the four machines, before and beyond their memory."""

from __future__ import annotations

import pytest

from hetsched.errors import UsageError
from hetsched.simulate.papers import clarke
from hetsched.simulate.papers.clarke import MOST_RUNS, Outcome, Setting, balance

METHODS = ("constant", "geometric", "smooth", "dfpa")


@pytest.fixture(scope="module")
def swept() -> dict[str, list[Outcome]]:
    """All 72 settings under each method; "limited": geometric with known limits."""
    found = {
        method: [balance(setting, method) for setting in clarke.settings()]
        for method in ("constant", "geometric", "smooth")
    }
    found["limited"] = [
        balance(setting, "geometric", limited=True) for setting in clarke.settings()
    ]
    return found


@pytest.mark.parametrize("method", METHODS)
def test_within_memory_every_method_needs_two_runs(method: str) -> None:
    outcome = balance(Setting(8000), method)

    assert [run.shares for run in outcome.trace.runs][1:] == [(2149, 1791, 2030, 2030)]
    assert outcome.trace.balanced
    assert outcome.pages == ()


def test_constant_models_send_the_same_rows_to_and_fro() -> None:
    outcome = balance(Setting(11000), "constant", for_ever=True, most=12)
    shares = [run.shares for run in outcome.trace.runs]

    assert outcome.near is None
    assert min(outcome.ratios) == pytest.approx(1.83, abs=0.01)
    assert shares[3:9:2] == [shares[3]] * 3
    assert shares[4:10:2] == [shares[4]] * 3
    assert shares[4][0] - shares[3][0] == 3740
    assert outcome.trace.moved()[-1] * 8 * 11000 == pytest.approx(329e6, rel=0.001)


def test_the_ping_pong_ends_if_it_is_remembered() -> None:
    trace = balance(Setting(11000), "constant").trace

    assert trace.reason.endswith("seen before")
    assert trace.final == trace.best


def test_geometric_pages_in_run_8_and_is_near_the_optimum_in_9_as_in_the_paper() -> None:
    outcome = balance(Setting(11000), "geometric")

    assert clarke.optimum(Setting(11000)).shares == (2526, 2526, 2974, 2974)
    assert outcome.near == 7
    assert outcome.pages[:2] == (1, 8)
    assert outcome.ratios[8] < clarke.NEAR


def test_smooth_is_near_the_optimum_in_run_7_as_in_the_paper() -> None:
    assert balance(Setting(12000), "smooth").near == 7


def test_there_are_72_settings() -> None:
    assert len(set(clarke.settings())) == 72


def test_geometric_is_near_the_optimum_within_9_runs_in_every_setting(
    swept: dict[str, list[Outcome]],
) -> None:
    assert [one for one in swept["geometric"] if one.near is None or one.near > 9] == []


def test_smooth_is_near_the_optimum_within_12_runs(swept: dict[str, list[Outcome]]) -> None:
    assert sum(one.near is not None and one.near <= 12 for one in swept["smooth"]) >= 70


def test_constant_is_never_near_the_optimum(swept: dict[str, list[Outcome]]) -> None:
    assert [one for one in swept["constant"] if one.near is not None] == []


def test_loops_that_find_no_balance_end_with_the_best_that_they_measured(
    swept: dict[str, list[Outcome]],
) -> None:
    for one in (*swept["geometric"], *swept["smooth"], *swept["constant"]):
        assert len(one.trace.runs) < MOST_RUNS
        if one.trace.reason != "balanced":
            assert one.trace.final.makespan == one.trace.best.makespan


def test_with_known_limits_two_runs_do_and_nobody_pages(swept: dict[str, list[Outcome]]) -> None:
    for one in swept["limited"]:
        assert one.near is not None
        assert one.near <= 2
        assert len(one.trace.runs) <= 2
        assert one.pages == ()


@pytest.mark.parametrize("rows", [11000, 12000])
@pytest.mark.parametrize("method", ["geometric", "smooth"])
def test_it_doesnt_matter_whether_time_or_speed_is_linear(method: str, rows: int) -> None:
    near = balance(Setting(rows, linear="speed"), method).near

    assert near is not None
    assert near <= 9


@pytest.mark.parametrize(
    ("setting", "said"),
    [
        (Setting(3), "rows: 3, it must be 4 to 100000"),
        (Setting(10**6), "rows: 1000000"),
        (Setting(8000, reserve=256.0), "reserve: 256 MiB"),
        (Setting(8000, reserve=-1.0), "reserve: -1 MiB"),
        (Setting(8000, reserve=float("nan")), "reserve: nan MiB"),
        (Setting(8000, factor=0.1), "factor"),
        (Setting(8000, width=-0.1), "width"),
    ],
)
def test_settings_that_cant_be_are_refused(setting: Setting, said: str) -> None:
    with pytest.raises(UsageError, match=said):
        balance(setting, "geometric")


def test_the_report_stands_beside_the_paper() -> None:
    report = clarke.report((11000,))
    table, by_run = report.tables

    rows = {row[1]: dict(zip(table.columns, row, strict=True)) for row in table.rows}
    assert rows["constant"]["near in run"] == "never"
    assert rows["constant"]["paper"] == "never, 300 MB a run"
    assert rows["geometric"]["paper"] == "9, pages in 8"
    assert rows["limits known"]["that page"] == 0
    assert dict(zip(by_run.columns, by_run.rows[7], strict=True))["pages"] == "P1"
    assert [chart.title for chart in report.charts] == ["11000 rows", "11000 rows, geometric"]


def test_another_setting_isnt_the_papers() -> None:
    table = clarke.report((8000,), like=Setting(8000, reserve=40.0)).tables[0]

    assert {row[table.columns.index("paper")] for row in table.rows} == {None}
