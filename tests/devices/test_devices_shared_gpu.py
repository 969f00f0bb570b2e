from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import msgspec
import numpy as np
import pytest

import hetsched
from hetsched.config import parse
from hetsched.device import DEVICE_KINDS

MIB = 1 << 20


@pytest.fixture
def used(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """The file that says how many bytes of the GPU's memory others use."""
    file = tmp_path / "used"
    file.write_text("0")
    monkeypatch.setenv("FAKE_GPU_USED", str(file))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    kind = msgspec.structs.replace(DEVICE_KINDS["cuda"], package="fake_gpu")
    monkeypatch.setitem(DEVICE_KINDS, "cuda", kind)
    return file


@pytest.fixture
def local(used: Path) -> Iterator[hetsched.Local]:
    with hetsched.Local(parse("[[device]]\nkind = 'gpu'\n", "test"), learn=False) as local:
        yield local


def run(local: hetsched.Local) -> None:
    job = local.submit("toys:Toy", np.ones((40, 4)), units=40, verify=True)
    assert (job.result(timeout=60) == 3).all()


def test_jobs_run_on_what_others_leave_of_a_gpu(local: hetsched.Local, used: Path) -> None:
    run(local)
    (before,), _ = local.devices()

    used.write_text(str(1000 * MIB))
    run(local)  # at its end the GPU reports its memory
    run(local)

    (after,), _ = local.devices()
    assert (before.memory, after.memory) == (1536 * MIB, 536 * MIB)
