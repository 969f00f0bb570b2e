"""What is natural to write in Python works, or is refused with what to write instead."""

from __future__ import annotations

import pickle
from pathlib import Path

import numpy as np
import pytest

import hetsched

PLANES = np.ones((4, 8, 8), "complex64")


def test_workloads_and_errors_are_found_in_the_package() -> None:
    assert {"fft", "matrix_update", "pcg"} <= set(hetsched.workloads())
    assert issubclass(hetsched.JobFailed, hetsched.HetschedError)


def test_sizes_may_be_numbers(local: hetsched.Local) -> None:
    assert local.submit("fft", batch=(4, 8, 8)).result(60).shape == (4, 8, 8)


def test_a_job_is_no_array(local: hetsched.Local) -> None:
    first = local.submit("fft", PLANES)
    with pytest.raises(hetsched.UsageError, match=r"is a job: give its result\(\)"):
        local.submit("fft", first)  # type: ignore[arg-type]


def test_several_inputs_are_named_as_in_python(local: hetsched.Local) -> None:
    with pytest.raises(hetsched.UsageError, match=r"C, A, B: name them, .* {name: array}"):
        local.submit("matrix_update", PLANES).result(60)


def test_what_replaces_a_file_is_named(local: hetsched.Local, tmp_path: Path) -> None:
    (tmp_path / "y.npy").write_bytes(b"mine")

    with pytest.raises(hetsched.CantCreate, match="force=True"):
        local.submit("fft", PLANES, out=tmp_path / "y.npy").result(60)

    assert (tmp_path / "y.npy").read_bytes() == b"mine"


def test_results_have_the_name_of_a_format(local: hetsched.Local, tmp_path: Path) -> None:
    with pytest.raises(hetsched.UsageError, match=r"z.png'?: the name must end with .npy"):
        local.submit("fft", PLANES, out=tmp_path / "z.png")


def test_neither_an_engine_nor_a_job_can_be_sent_elsewhere(local: hetsched.Local) -> None:
    for held in (local, local.submit("fft", PLANES)):
        with pytest.raises(TypeError, match="belongs to its process"):
            pickle.dumps(held)
