from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from hetsched.plans import Overlap, check
from hetsched.simulate.__main__ import main
from hetsched.simulate.machine import ideal_plan, makespan
from hetsched.simulate.papers import clarke, ilic, nec

Capture = pytest.CaptureFixture[str]

EXPERIMENTS = {
    "clarke": [],
    "dfpa": ["--platforms", "20", "--seed", "11"],
    "nec": ["--nodes", "4", "--nodes", "16"],
    "ilic": [],
}
LOAD = "[load]\nunits = 8\ninput_bytes = 8\noutput_bytes = 8\n"


@pytest.mark.parametrize("name", EXPERIMENTS)
def test_tables_are_those_that_the_documents_quote(
    name: str, capsys: Capture, golden: Callable[[str, str], None]
) -> None:
    assert main([name, *EXPERIMENTS[name]]) == 0

    head, tables = capsys.readouterr().out.split("\n", 1)
    assert head.startswith(f"{name}: ")
    golden(f"simulate_{name}", tables)


def test_a_shipped_profile_is_planned_with_its_bound(capsys: Capture) -> None:
    assert main(["machine", "--profile", "desktop"]) == 0

    text = capsys.readouterr().out
    assert re.search(r"^cpu7 +1\d +\d+ +- +- +\d", text, re.MULTILINE)
    assert re.search(r"^gpu0 +1[01]\d +39\d\d\d +ring +\d+ +\d", text, re.MULTILINE)
    assert re.search(r"^bound +39900 ", text, re.MULTILINE)
    assert re.search(
        r"^gpu0 +1[01]\d units by its speed, \d+ chunks in a ring", text, re.MULTILINE
    )


def test_json_is_one_object_with_a_name_for_each_cell(capsys: Capture) -> None:
    assert main(["machine", "--profile", "h100", "--runs", "4", "--seed", "3", "--json"]) == 0

    record = json.loads(capsys.readouterr().out)
    assert (record["schema"], record["experiment"]) == ("hetsched.simulate/1", "machine")
    runs = record["tables"][0]["rows"]
    assert [row["run"] for row in runs] == [1, 2, 3, 4]
    assert runs[0]["predicted, us"] is None
    assert runs[3]["above known, %"] <= 2


def test_a_setting_of_your_own_has_no_figures_of_the_paper(capsys: Capture) -> None:
    words = "clarke --rows 4000 --rows 8000 --reserve 40MiB --factor 20 --width 0.1 --json"
    assert main(words.split()) == 0

    (table, *_) = json.loads(capsys.readouterr().out)["tables"]
    assert {row["rows"] for row in table["rows"]} == {4000, 8000}
    assert {row["paper"] for row in table["rows"]} == {None}


def test_it_runs_as_a_module() -> None:
    words = [sys.executable, "-m", "hetsched.simulate", "nec", "--nodes", "1"]
    ended = subprocess.run(words, capture_output=True, text=True, check=False)
    assert (ended.returncode, ended.stdout) == (2, "")
    assert ended.stderr == "error: nodes: 1 must be 2 to 128\n"


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("", "EXPERIMENT"),
        ("clark", "'clark' (choose from 'clarke'"),
        ("clarke --rows 3", "rows: 3 must be 4 to 100000"),
        ("clarke --rows many", "--rows: "),
        ("clarke --reserve 1GiB", "reserve: 1024 MiB"),
        ("clarke --reserve some", "--reserve: 'some' is not a size"),
        ("clarke --factor 0", "factor: 0.0 must be 1 to"),
        ("clarke --width nan", "width: nan of the capacity"),
        ("clarke --linear size", "--linear: "),
        ("clarke --tolerance -1", "tolerance: -1.0"),
        ("dfpa --platforms 0", "platforms: 0 must be at least 1"),
        ("dfpa --seed -1", "--seed -1: must be 0 to"),
        ("machine", "--profile"),
        ("machine --profile h100 --noise 0.1", "--noise needs --runs"),
        ("machine --profile h100 --runs 2 --noise 0.5", "--noise 0.5: must be 0 to"),
        ("machine --profile h100 --runs 0", "--runs 0: must be 1 to"),
    ],
)
def test_mistakes_get_one_line_and_code_2(words: str, said: str, capsys: Capture) -> None:
    assert main(words.split()) == 2

    out, error = capsys.readouterr()
    assert (out, error.count("\n")) == ("", 1)
    assert said in error


@pytest.mark.parametrize(
    ("text", "code", "said"),
    [
        (None, 66, "machine.toml: No such file"),
        ("", 78, "no [load]"),
        ("[load", 78, "not valid TOML"),
        (LOAD, 78, "no [[device]]"),
        (
            f'{LOAD}[[device]]\nkind = "gpu"\nmemory = "9B"\ncompute = {{ unit = "1ms" }}\n'
            'h2d = { unit = "1ms" }\nd2h = { unit = "1ms" }',
            65,
            "no device can hold one unit",
        ),
    ],
)
def test_a_wrong_profile_is_one_line_and_its_code(
    text: str | None, code: int, said: str, tmp_path: Path, capsys: Capture
) -> None:
    file = tmp_path / "machine.toml"
    if text is not None:
        file.write_text(text)

    assert main(["machine", "--profile", str(file)]) == code
    assert said in capsys.readouterr().err


# ---- beyond the tables

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
        assert (
            1 < step.one_by_one / step.seconds <= (2 if setting.overlap is Overlap.SINGLE else 3)
        )
    check(plan.assignments[0].plan, ilic.MEMORY)
