"""A device that has less memory than it says is answered by a smaller plan."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from deadly import WIDTH

import hetsched
from hetsched.config import parse
from hetsched.errors import JobFailed

HERE = Path(__file__).parent
UNITS = 128
SAYS = 32 << 10
MACHINE = f"""
[[device]]
kind = "emulated"
name = "emu0"
clock = "virtual"
memory = "{SAYS}B"
compute = {{ gap = "20us", unit = "20us" }}
h2d = {{ gap = "20us", unit = "20us" }}
d2h = {{ gap = "20us", unit = "20us" }}
"""


@pytest.fixture
def local(monkeypatch: pytest.MonkeyPatch) -> Iterator[hetsched.Local]:
    monkeypatch.setenv("PYTHONPATH", str(HERE))
    with hetsched.Local(parse(MACHINE, "test"), learn=False) as local:
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
