"""The command that runs the learning cases."""

from __future__ import annotations

import pytest

from benchmarks.learning import __main__ as command
from benchmarks.learning.cases import FAMILIES
from benchmarks.results import Bar, Result


def _family(value: float) -> Result:
    return Result("case", "Case", ("case",), [("steps",)], [], [Bar("ratio", value, 1.0, False)])


@pytest.mark.parametrize(("value", "status", "verdict"), [(0.9, 0, "holds"), (1.1, 1, "missed")])
def test_a_missed_bar_is_shown_and_is_the_exit_status(
    value: float,
    status: int,
    verdict: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setitem(FAMILIES, "case", lambda seeds: _family(value))

    assert command.main(["case", "--seeds", "1"]) == status
    assert verdict in capsys.readouterr().out


@pytest.mark.parametrize("arguments", [["unheard-of"], ["--seeds", "0"]])
def test_a_wrong_argument_is_refused(arguments: list[str]) -> None:
    with pytest.raises(SystemExit) as refused:
        command.main(arguments)
    assert refused.value.code == 2
