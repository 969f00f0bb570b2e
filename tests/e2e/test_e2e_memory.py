"""A device that has less memory than it says is answered by a smaller plan."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from deadly import WIDTH

import hetsched
from hetsched.config import Config, parse
from hetsched.engine.job import job_record
from hetsched.errors import DataError, JobFailed
from hetsched.explain import Explanation
from hetsched.job import JobState, Running

HERE = Path(__file__).parent
UNITS = 128
SAYS = 32 << 10
UNIT = 2 * WIDTH * 8


def machine(*memory: int) -> Config:
    """A device for each, which says that it has so many bytes."""
    devices = [
        f"""
        [[device]]
        kind = "emulated"
        clock = "virtual"
        memory = "{says}B"
        compute = {{ gap = "20us", unit = "20us" }}
        h2d = {{ gap = "20us", unit = "20us" }}
        d2h = {{ gap = "20us", unit = "20us" }}
        """
        for says in memory
    ]
    return parse("".join(devices), "test")


@pytest.fixture
def local(monkeypatch: pytest.MonkeyPatch) -> Iterator[hetsched.Local]:
    monkeypatch.setenv("PYTHONPATH", str(HERE))
    with hetsched.Local(machine(SAYS), learn=False) as local:
        yield local


def run(local: hetsched.Local, room: int, at: str, folder: Path) -> list[int]:
    """Bytes of slots that were asked for, time after time, until the result was right."""
    x = local.empty((UNITS, WIDTH), "float64")
    x[...] = np.arange(UNITS)[:, None]
    job = local.submit("scarce:Scarce", x, units=UNITS, room=room, at=at, folder=str(folder))
    y = job.result(timeout=60)
    assert (y == 2 * x + 1).all()
    return [int(line) for line in (folder / "rooms").read_text().splitlines()]


@pytest.mark.parametrize("at", ["prepare", "3"])
def test_a_plan_that_does_not_fit_is_made_smaller(
    local: hetsched.Local, at: str, tmp_path: Path
) -> None:
    asked = run(local, SAYS // 4, at, tmp_path)

    assert asked[0] > SAYS // 4
    assert asked[-1] <= SAYS // 4
    assert len(asked) <= 3
    assert all(later <= earlier / 2 for earlier, later in itertools.pairwise(asked))


def test_the_next_job_begins_with_what_did_well_and_tries_more_later(
    local: hetsched.Local, tmp_path: Path
) -> None:
    run(local, SAYS // 4, "prepare", tmp_path)
    (tmp_path / "rooms").unlink()

    asked = run(local, SAYS // 4, "prepare", tmp_path)

    assert min(asked) <= SAYS // 4
    assert len(asked) <= 2


def test_where_not_even_a_unit_fits_the_job_fails(local: hetsched.Local, tmp_path: Path) -> None:
    with pytest.raises(JobFailed, match="somebody else has taken the memory"):
        run(local, 0, "prepare", tmp_path)


def test_a_job_that_starts_over_with_fewer_devices_is_explained(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """What emu0 has done doesn't belong to the plan without it."""
    monkeypatch.setenv("PYTHONPATH", str(HERE))
    monkeypatch.setattr(job_record, "PROGRESS_SECONDS", 0)
    asked: list[tuple[Explanation | None, BaseException | None]] = []

    def heard(state: JobState) -> None:
        if isinstance(state, Running) and state.stage == "preparing":
            local._engine.explain(state.job, lambda *answer: asked.append(answer))

    with hetsched.Local(machine(UNIT, UNIT), learn=False) as local:
        x = local.empty((UNITS, WIDTH), "float64")
        given = {"units": UNITS, "room": UNIT // 2, "at": "3", "folder": str(tmp_path)}
        job = local.submit("scarce:Scarce", x, follow=heard, **given)
        with pytest.raises(DataError, match="no device can take even one unit"):
            job.result(timeout=60)
        job.explain()

    found = [
        [one.device for one in explanation.devices] for explanation, _ in asked if explanation
    ]
    assert found == [["emu0", "emu1"], ["emu1"]], asked
