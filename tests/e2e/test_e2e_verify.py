"""`--verify` finds every fault, and passes every correct result."""

from __future__ import annotations

import itertools
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import wrong_fft
from hypothesis import settings

import hetsched
from hetsched.errors import JobFailed

HERE = Path(__file__).parent
TRIALS = settings().max_examples // 4
"""Draws of each fault."""


@pytest.fixture(scope="module")
def local(tmp_path_factory: pytest.TempPathFactory) -> Iterator[hetsched.Local]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_CACHE_HOME", str(tmp_path_factory.mktemp("cache")))
        patch.setenv("PYTHONPATH", str(HERE))
        with hetsched.Local("cpu-only", learn=False) as local:
            yield local


@pytest.mark.parametrize("fault", [*wrong_fft.FAULTS, "left_out"])
def test_every_fault_is_caught(local: hetsched.Local, fault: str) -> None:
    for draw in range(TRIALS):
        dtype = ("complex64", "complex128")[draw % 2]
        job = local.submit(
            "wrong_fft:WrongFft", batch="64x32x32", dtype=dtype,
            fault=fault, draw=draw, seed=draw, verify=True,
        )  # fmt: skip

        with pytest.raises(JobFailed, match="verification failed"):
            job.result(timeout=60)

        assert job.report is not None
        assert job.report.verified is False


def test_without_verify_a_fault_passes(local: hetsched.Local) -> None:
    job = local.submit("wrong_fft:WrongFft", batch="64x32x32", fault="zeroed")

    job.result(timeout=60)

    assert job.report is not None
    assert job.report.verified is None


def test_correct_results_pass(local: hetsched.Local) -> None:
    sizes = [
        "5x64x64",
        "3x127x31",
        "9x1x97",
        "2x256x256",
        "7x100x60",
        "4x509x13",
        "1x1x1",
        "40x8x8",
    ]
    dtypes, directions = ("complex64", "complex128"), ("forward", "inverse", "roundtrip")
    for seed, (batch, dtype, direction) in enumerate(itertools.product(sizes, dtypes, directions)):
        job = local.submit(
            "fft", batch=batch, dtype=dtype, direction=direction, seed=seed, verify=True
        )

        job.result(timeout=60)

        assert job.report is not None
        assert job.report.verified is True


def test_spectra_of_constant_planes_pass(local: hetsched.Local) -> None:
    for value in (1, 3.7, -1e9, 1e-12):
        job = local.submit("fft", np.full((8, 100, 100), value, "complex64"), verify=True)

        job.result(timeout=60)


def test_nan_and_inf_in_the_input_are_no_fault(local: hetsched.Local) -> None:
    x = np.ones((6, 16, 16), "complex64")
    x[1, 2, 3] = np.nan
    x[4, 5, 6] = np.inf

    job = local.submit("fft", x, verify=True)
    y = job.result(timeout=60)

    assert [bool(np.isfinite(plane).all()) for plane in y] == [
        True,
        False,
        True,
        True,
        False,
        True,
    ]


def test_the_command_exits_with_1_and_keeps_nothing(tmp_path: Path) -> None:
    output = tmp_path / "y.npy"
    command = [sys.executable, "-m", "hetsched.cli.main", "run", "wrong_fft:WrongFft"]
    command += ["--batch", "16x32x32", "--fault", "turned", "--verify", "--output", str(output)]
    environment = {
        "PATH": "/usr/bin:/bin", "PYTHONPATH": str(HERE), "HETSCHED_STATE_DIR": str(tmp_path),
        "XDG_CACHE_HOME": str(tmp_path),
    }  # fmt: skip

    ended = subprocess.run(
        command, env=environment, capture_output=True, text=True, timeout=60, check=False
    )

    assert ended.returncode == 1, ended.stderr
    assert "verification failed" in ended.stderr
    assert "Traceback" not in ended.stderr
    assert not output.exists()
