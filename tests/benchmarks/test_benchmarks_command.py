"""The command line of the sets of measurements."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks import command
from benchmarks.results import Bar, Result


def result(name: str, value: float = 1.0) -> Result:
    made = Result(name, name, ("what", "value"))
    made.bars.append(Bar("speed", value, 0.9))
    return made


def broken() -> Result:
    raise RuntimeError("no daemon")


def test_one_that_fails_does_not_stop_the_others(capsys: pytest.CaptureFixture[str]) -> None:
    saved: list[str] = []

    def save(done: Result) -> Path:
        saved.append(done.name)
        return Path("here")

    measurements = {
        "broken": broken,
        "slow": lambda: result("slow", 0.5),
        "good": lambda: result("good"),
    }
    assert command.run_all(measurements, save) == 1
    assert saved == ["slow", "good"]
    assert "failed: broken, slow" in capsys.readouterr().out


def test_without_bars_only_an_exception_is_a_failure() -> None:
    slow = {"slow": lambda: result("slow", 0.5)}
    assert command.run_all(slow, None, must_hold=False) == 0
    assert command.run_all({"broken": broken}, None, must_hold=False) == 1


def test_an_unknown_name_ends_with_2(capsys: pytest.CaptureFixture[str]) -> None:
    known = {"one": 1, "two": 2}
    parser = command.parser("benchmarks", known)
    assert command.chosen(parser, [], known) == ["one", "two"]
    with pytest.raises(SystemExit) as ended:
        command.chosen(parser, ["three"], known)
    assert ended.value.code == 2
    assert "unknown: three; choose from: one, two" in capsys.readouterr().err
