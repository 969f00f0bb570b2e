"""`hetsched simulate machine`: tables, JSON, pictures, errors."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from .conftest import Call

LOAD = "[load]\nunits = 8\ninput_bytes = 8\noutput_bytes = 8\n"


def test_a_shipped_profile_is_planned_and_told_with_its_bound(call: Call) -> None:
    ended = call("simulate", "machine", "--profile", "desktop")

    assert ended.code == 0, ended.err
    lines = ended.out.splitlines()
    assert any(line.startswith("cpu7") for line in lines)
    assert ["bound", "39900"] in [line.split()[:2] for line in lines]
    assert any("chunks in a ring of" in line for line in lines)


def test_json_has_every_run_from_nothing(call: Call) -> None:
    words = ("--profile", "h100", "--runs", "4", "--noise", "0.02", "--seed", "3", "--json")
    ended = call("simulate", "machine", *words)

    record = json.loads(ended.out)
    assert (record["schema"], record["experiment"]) == ("hetsched.simulate/1", "machine")
    runs = record["tables"][0]["rows"]
    assert [row["run"] for row in runs] == [1, 2, 3, 4]
    assert runs[0]["predicted, us"] is None
    assert runs[3]["above known, %"] <= 2


def test_the_papers_own_way_can_be_chosen(call: Call) -> None:
    words = ("simulate", "machine", "--profile", "h100", "--runs", "2", "--json")
    ways = [call(*words, "--total", way).out for way in ("planned", "measured")]

    second = [json.loads(out)["tables"][0]["rows"][1]["without noise, us"] for out in ways]
    assert second[0] < second[1]


@pytest.mark.parametrize("words", [(), ("--runs", "3")])
def test_a_picture_is_drawn(call: Call, tmp_path: Path, words: tuple[str, ...]) -> None:
    pytest.importorskip("matplotlib")
    file = tmp_path / "machine.svg"
    ended = call("simulate", "machine", "--profile", "desktop", *words, "--plot", str(file))

    assert ended.code == 0, ended.err
    assert file.read_bytes().startswith(b"<?xml")


@pytest.mark.parametrize(
    ("text", "code", "said"),
    [
        (None, 66, "machine.toml: No such file"),
        ("", 78, "no [load]"),
        ("[load]\nunits = 8", 78, "load: missing key input_bytes"),
        (LOAD, 78, "no [[device]]"),
        (f'{LOAD}[[device]]\nkind = "gpu"\ncompute = {{ unit = "1ms" }}', 78, "give h2d and d2h"),
        (f'{LOAD}[[device]]\nkind = "tpu"', 78, "device[0].kind"),
        ("[load", 78, "not valid TOML"),
        (
            f'{LOAD}[[device]]\nkind = "gpu"\nmemory = "9B"\ncompute = {{ unit = "1ms" }}\n'
            'h2d = { unit = "1ms" }\nd2h = { unit = "1ms" }',
            65,
            "no device can hold one unit",
        ),
    ],
)
def test_a_wrong_profile_is_one_line_and_its_code(
    call: Call, tmp_path: Path, text: str | None, code: int, said: str
) -> None:
    file = tmp_path / "machine.toml"
    if text is not None:
        file.write_text(text)

    ended = call("simulate", "machine", "--profile", str(file))

    assert (ended.code, ended.out) == (code, "")
    assert said in ended.error


def test_an_unknown_name_is_66_with_those_that_ship(call: Call) -> None:
    ended = call("simulate", "machine", "--profile", "laptop")

    assert ended.code == 66
    assert "no profile 'laptop'; shipped are desktop, h100" in ended.error


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ((), "missing option '--profile'"),
        (("--profile", "h100", "--noise", "0.1"), "--noise needs --runs"),
        (("--profile", "h100", "--total", "measured"), "--total needs --runs"),
        (("--profile", "h100", "--runs", "2", "--noise", "0.5"), "--noise 0.5: must be 0 to"),
        (("--profile", "h100", "--runs", "0"), "--runs"),
        (("--profile", "h100", "--plot", "x.gif"), "--plot x.gif: the name must end in"),
    ],
)
def test_mistakes_are_code_2(call: Call, words: tuple[str, ...], said: str) -> None:
    ended = call("simulate", "machine", *words)

    assert (ended.code, ended.out) == (2, "")
    assert said in ended.error


def test_config_check_looks_into_profiles(call: Call, tmp_path: Path) -> None:
    file = tmp_path / "machine.toml"
    file.write_text(f'{LOAD}[[device]]\nkind = "cpu"\n')

    ended = call("config", "check", str(file))

    assert ended.code == 78
    assert "device[0]: a modelled device needs compute" in ended.error
