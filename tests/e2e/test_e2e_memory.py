"""A device that has less memory than it reports gets a smaller plan."""

from __future__ import annotations

import itertools
from pathlib import Path

import numpy as np
import pytest
from toys import WIDTH

import hetsched
from hetsched.config import Config, parse
from hetsched.errors import DataError, JobFailed

UNITS = 1024
REPORTED = 32 << 10
UNIT = 512
"""Bytes of one unit in device memory: its two arrays are aligned."""
pytestmark = pytest.mark.usefixtures("plug_ins")


def machine(*memory: int) -> Config:
    """A device for each entry, which reports so many bytes of memory."""
    device = """
    [[device]]
    kind = "emulated"
    clock = "virtual"
    memory = "{}B"
    compute = {{ gap = "20us", unit = "20us" }}
    h2d = {{ gap = "20us", unit = "20us" }}
    d2h = {{ gap = "20us", unit = "20us" }}
    """
    return parse("".join(map(device.format, memory)), "test")


def run(local: hetsched.Local, capacity: int, at: str, folder: Path) -> list[int]:
    """Bytes of slots requested in each attempt, until the result was right."""
    folder.mkdir()
    x = np.tile(np.arange(float(UNITS))[:, None], WIDTH)
    params = {"units": UNITS, "capacity": capacity, "at": at, "folder": str(folder)}
    job = local.submit("scarce:Scarce", x, **params)
    assert (job.result(timeout=60) == 2 * x + 1).all()
    return [int(line) for line in (folder / "requests").read_text().splitlines()]


@pytest.mark.parametrize("at", ["prepare", "3"])
def test_a_plan_that_does_not_fit_is_made_smaller_and_the_next_job_starts_with_its_size(
    at: str, tmp_path: Path
) -> None:
    with hetsched.Local(machine(REPORTED), learn=False) as local:
        requested = run(local, REPORTED // 4, at, tmp_path / "first")
        assert requested[0] > REPORTED // 4 >= requested[-1]
        assert len(requested) <= 3
        assert all(later <= earlier / 2 for earlier, later in itertools.pairwise(requested))

        requested = run(local, REPORTED // 4, at, tmp_path / "second")
        assert min(requested) <= REPORTED // 4
        assert len(requested) <= 2


def test_where_not_even_a_unit_fits_the_job_fails(tmp_path: Path) -> None:
    refused = pytest.raises(JobFailed, match="another process has taken the memory")
    with hetsched.Local(machine(REPORTED), learn=False) as local, refused:
        run(local, 0, "prepare", tmp_path / "one")
    with hetsched.Local(machine(UNIT, UNIT), learn=False) as local:
        with pytest.raises(DataError, match="no device can hold one unit"):
            run(local, UNIT // 2, "3", tmp_path / "two")
        assert local.explain(1).job == 1
