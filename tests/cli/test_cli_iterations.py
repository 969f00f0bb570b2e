"""Flags of iterative jobs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from hetsched.cli.commands.run import COMPUTED
from hetsched.cli.workloads import workload_command
from hetsched.job import JobSpec


class Asked(Exception):
    """A command has been called, with this job."""

    def __init__(self, spec: JobSpec) -> None:
        self.spec = spec


def ask(*words: str) -> JobSpec:
    """Return the job that `run` with these flags would run."""

    def action(spec: JobSpec) -> None:
        raise Asked(spec)

    command = workload_command(*COMPUTED)(action)
    with pytest.raises(Asked) as asked:
        command.main(["diffusing_workload:Diffusion", *words], standalone_mode=False)
    return asked.value.spec


def test_iterative_workloads_have_more_flags(tmp_path: Path, monkeypatch: Any) -> None:
    monkeypatch.chdir(tmp_path)

    spec = ask(
        "--rows", "9", "--balance", "imbalance-factor", "--warm-up", "dfpa",
        "--checkpoint", "c", "--every", "1m", "--resume", "/r",
    )  # fmt: skip

    assert (spec.balance, spec.warm_up, spec.every) == ("imbalance-factor", "dfpa", 60.0)
    assert (spec.checkpoint, spec.resume) == (f"{tmp_path}/c", "/r")
    assert spec.params == {"rows": "9"}


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("--balance", "functionl"), "--balance: unknown value 'functionl'; did you mean 'functi"),
        (("--warm-up", "x"), "--warm-up: unknown value 'x'; choose from: dfpa"),
        (("--every", "soon"), "--every: 'soon' is not a time"),
        (("--every", "5s"), "--every: there is no checkpoint"),
        (("--checkpoint", ""), "--checkpoint: the file name is missing"),
    ],
)
def test_wrong_values_are_usage_errors(call: Any, words: tuple[str, ...], message: str) -> None:
    ended = call("run", "heat", "--grid", "8x8", *words)
    assert (ended.code, ended.error[: len(message)]) == (2, message)
