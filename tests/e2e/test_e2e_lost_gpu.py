"""A GPU, on the fake runtime, dies with rows that only its own memory has; whole jobs."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import msgspec
import numpy as np
import pytest
from diffusing_workload import DiffusionParams, diffused

import hetsched
from hetsched.config import parse
from hetsched.device_kinds import DEVICE_KINDS
from hetsched.job import JobReport

DEADLY = "deadly_diffusion:DeadlyDiffusion"
TESTS = Path(__file__).parent.parent
MACHINE = """
[deadlines]
start = "10m"  # on a busy machine a process may take long to start

[[device]]
kind = "cpu"
count = 1

[[device]]
kind = "gpu"
"""
ROWS, ITERATIONS = 60, 300
ALLOWED = 1 + ITERATIONS // 50
"""Iterations that a loss may repeat."""


@pytest.fixture
def local(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[hetsched.Local]:
    used = tmp_path / "used"
    used.write_text("0")
    monkeypatch.setenv("FAKE_GPU_USED", str(used))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    folders = (TESTS, TESTS / "e2e", TESTS / "devices")
    monkeypatch.setenv("PYTHONPATH", ":".join(map(str, folders)))
    monkeypatch.syspath_prepend(TESTS / "devices")
    kind = msgspec.structs.replace(DEVICE_KINDS["cuda"], package="fake_gpu")
    monkeypatch.setitem(DEVICE_KINDS, "cuda", kind)
    with hetsched.Local(parse(MACHINE, "test"), learn=False) as local:
        yield local


@pytest.mark.parametrize("border", ["periodic", "fixed"])
def test_the_core_goes_back_and_the_result_is_right(
    local: hetsched.Local, tmp_path: Path, border: str
) -> None:
    x = np.random.default_rng(0).standard_normal((ROWS, 4))
    job = local.submit(
        DEADLY,
        x,
        rows=ROWS,
        iterations=ITERATIONS,
        border=border,
        balance="none",
        markers=str(tmp_path),
        calls=(54, 104),
        victim="fake_gpu.device",
    )

    y = job.result(300).y

    params = DiffusionParams(rows=ROWS, columns=4, iterations=ITERATIONS, border=border)
    expected, _ = diffused(params, x)
    np.testing.assert_allclose(y, expected, atol=1e-12)
    report = job.report
    assert isinstance(report, JobReport)
    assert report.iterations == ITERATIONS
    lost = [note for note in report.notes if note.endswith("were lost and repeated")]
    assert lost[0] == "iterations 50 to 53 were lost and repeated"  # every seventh is saved
    for first, last in (map(int, re.findall(r"\d+", note)) for note in lost):
        assert last - first + 1 <= ALLOWED
