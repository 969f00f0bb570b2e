"""A device that has less memory than it reports gets a smaller plan."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from scarce import WIDTH

import hetsched
from hetsched.config import Config, parse
from hetsched.engine.run import runner
from hetsched.errors import DataError, JobFailed
from hetsched.explain import Explanation
from hetsched.job import JobState, Running

HERE = Path(__file__).parent
UNITS = 128
REPORTED = 32 << 10
UNIT = 2 * WIDTH * 8


def machine(*memory: int) -> Config:
    """A device for each entry, which reports so many bytes of memory."""
    devices = [
        f"""
        [[device]]
        kind = "emulated"
        clock = "virtual"
        memory = "{nbytes}B"
        compute = {{ gap = "20us", unit = "20us" }}
        h2d = {{ gap = "20us", unit = "20us" }}
        d2h = {{ gap = "20us", unit = "20us" }}
        """
        for nbytes in memory
    ]
    return parse("".join(devices), "test")


@pytest.fixture
def local(monkeypatch: pytest.MonkeyPatch) -> Iterator[hetsched.Local]:
    monkeypatch.setenv("PYTHONPATH", str(HERE))
    with hetsched.Local(machine(REPORTED), learn=False) as local:
        yield local


def run(local: hetsched.Local, capacity: int, at: str, folder: Path) -> list[int]:
    """Bytes of slots requested in each attempt, until the result was right."""
    x = local.empty((UNITS, WIDTH), "float64")
    x[...] = np.arange(UNITS)[:, None]
    job = local.submit(
        "scarce:Scarce", x, units=UNITS, capacity=capacity, at=at, folder=str(folder)
    )
    y = job.result(timeout=60)
    assert (y == 2 * x + 1).all()
    return [int(line) for line in (folder / "requests").read_text().splitlines()]


@pytest.mark.parametrize("at", ["prepare", "3"])
def test_a_plan_that_does_not_fit_is_made_smaller(
    local: hetsched.Local, at: str, tmp_path: Path
) -> None:
    requested = run(local, REPORTED // 4, at, tmp_path)

    assert requested[0] > REPORTED // 4
    assert requested[-1] <= REPORTED // 4
    assert len(requested) <= 3
    assert all(later <= earlier / 2 for earlier, later in itertools.pairwise(requested))


def test_the_next_job_starts_with_the_size_that_worked_and_tries_more_later(
    local: hetsched.Local, tmp_path: Path
) -> None:
    run(local, REPORTED // 4, "prepare", tmp_path)
    (tmp_path / "requests").unlink()

    requested = run(local, REPORTED // 4, "prepare", tmp_path)

    assert min(requested) <= REPORTED // 4
    assert len(requested) <= 2


def test_where_not_even_a_unit_fits_the_job_fails(local: hetsched.Local, tmp_path: Path) -> None:
    with pytest.raises(JobFailed, match="another process has taken the memory"):
        run(local, 0, "prepare", tmp_path)


def test_a_job_that_starts_over_with_fewer_devices_is_explained(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Chunks that emu0 has done don't belong to the plan without it."""
    monkeypatch.setenv("PYTHONPATH", str(HERE))
    monkeypatch.setattr(runner, "PROGRESS_SECONDS", 0)
    explanations: list[tuple[Explanation | None, BaseException | None]] = []

    def on_state(state: JobState) -> None:
        at_start = isinstance(state, Running) and not any(each.done for each in state.devices)
        if at_start and state.stage == "computing":
            local._engine.explain(
                local._table.job(state.job), lambda *answer: explanations.append(answer)
            )

    with hetsched.Local(machine(UNIT, UNIT), learn=False) as local:
        x = local.empty((UNITS, WIDTH), "float64")
        params = {"units": UNITS, "capacity": UNIT // 2, "at": "3", "folder": str(tmp_path)}
        job = local.submit("scarce:Scarce", x, follow=on_state, **params)
        with pytest.raises(DataError, match="no device can hold one unit"):
            job.result(timeout=60)
        job.explain()

    planned_devices = [
        [device.device for device in explanation.devices]
        for explanation, _ in explanations
        if explanation
    ]
    assert planned_devices == [["emu0", "emu1"], ["emu1"]], explanations
