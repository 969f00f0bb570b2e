"""Flags, progress and results of iterative jobs."""

from __future__ import annotations

import io
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from hetsched.cli.commands.run import COMPUTED
from hetsched.cli.progress import job_table
from hetsched.cli.workloads import workload_command
from hetsched.job import DeviceProgress, JobSpec, Running


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


def drawn(state: Running) -> Sequence[str]:
    console = Console(file=io.StringIO(), width=80)
    console.print(job_table(state))
    output = console.file
    assert isinstance(output, io.StringIO)
    return [line.rstrip() for line in output.getvalue().splitlines()]


def test_the_live_table_shows_iteration_residual_rate_and_shares() -> None:
    rows = (DeviceProgress("cpu0", 0, 30), DeviceProgress("gpu0", 0, 90))
    state = Running(
        7, "iterating", rows, iteration=214, max_iterations=1000, residual=3.2e-5,
        iterations_per_second=87.25,
    )  # fmt: skip

    head, first, second = drawn(state)

    assert head.endswith("iteration 214 of at most 1000, residual 3.2e-05, 87.2/s")
    assert first.split()[-4:] == ["30", "rows,", "25.0", "%"]
    assert second.split()[-4:] == ["90", "rows,", "75.0", "%"]
