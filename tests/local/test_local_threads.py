"""Arrays that aren't in shared memory are computed where they are, in threads."""

from __future__ import annotations

import os
import threading
import weakref
from collections.abc import Iterator

import numpy as np
import pytest
import scipy.fft

import hetsched
from hetsched.config import parse

CONFIG = parse("[[device]]\nkind = 'cpu'\nteam = false\n", "test")
RNG = np.random.default_rng(0)


@pytest.fixture(scope="module")
def local() -> Iterator[hetsched.Local]:
    with hetsched.Local(CONFIG, learn=False) as local:
        yield local


def images(*shape: int) -> np.ndarray:
    x = RNG.standard_normal(shape) + 1j * RNG.standard_normal(shape)
    return x.astype("complex64")


def is_spectrum(y: np.ndarray, x: np.ndarray) -> bool:
    return np.allclose(y, scipy.fft.fft2(x), rtol=1e-3, atol=1e-3)


@pytest.mark.parametrize("is_strided", [False, True])
def test_the_callers_arrays_are_used_in_threads(local: hetsched.Local, is_strided: bool) -> None:
    x, out = images(40, 16, 16), np.empty((40, 16, 16), "complex64")
    if is_strided:
        x, out = np.asfortranarray(x), np.asfortranarray(out)

    assert local.submit("fft", x, out=out).result(60) is out

    assert is_spectrum(out, x)
    assert set(local.pids().values()) == {os.getpid()}


def test_jobs_that_need_processes_run_there(local: hetsched.Local) -> None:
    x, a = images(8, 16, 16), np.eye(8, dtype="float32")
    for _ in range(2):
        assert is_spectrum(local.submit("fft", x).result(60), x)

        shared = local.empty(x.shape)
        shared[...] = x
        assert is_spectrum(local.submit("fft", shared).result(60), x)
        assert os.getpid() not in local.pids().values()

        assert is_spectrum(local.submit("fft", x).result(60), x)
        out = np.zeros((8, 8), "float32")
        arrays = {"C": a, "A": a, "B": a}
        assert local.submit("matrix_update", arrays, out=out).result(60) is out
        np.testing.assert_array_equal(out, 2 * a)
        assert os.getpid() not in local.pids().values()

        solved = local.submit("jacobi", {"A": 4 * np.eye(9) + 0.1, "b": np.ones(9)}).result(60)
        assert solved.converged


def test_arrays_are_given_back_after_a_job(local: hetsched.Local) -> None:
    x, out = images(8, 16, 16), images(8, 16, 16)
    are_freed = [threading.Event(), threading.Event()]
    for array, is_freed in zip((x, out), are_freed, strict=True):
        weakref.finalize(array, is_freed.set)
    local.submit("fft", x, out=out).result(60)

    del x, out, array

    assert all(is_freed.wait(60) for is_freed in are_freed)


@pytest.mark.parametrize("shift", [0, 1])
def test_results_may_replace_the_inputs(local: hetsched.Local, shift: int) -> None:
    both = images(41, 16, 16)
    x, out = both[:40], both[shift : 40 + shift]
    expected = scipy.fft.fft2(x)

    assert local.submit("fft", x, out=out).result(60) is out

    np.testing.assert_allclose(out, expected, rtol=1e-3, atol=1e-3)


def test_results_are_converted_to_the_dtype_of_the_callers_array(local: hetsched.Local) -> None:
    x, out = images(8, 16, 16), np.empty((8, 16, 16), "complex128")
    assert local.submit("fft", x, out=out).result(60) is out
    assert is_spectrum(out, x)


def test_a_job_that_fails_in_a_thread_leaves_the_next_one_alone(local: hetsched.Local) -> None:
    x = images(8, 16, 16)
    with pytest.raises(hetsched.DataError, match="out for y is complex64 8x16x8"):
        local.submit("fft", x, out=np.zeros((8, 16, 16)).view("complex64")[..., ::2]).result(60)
    assert is_spectrum(local.submit("fft", x).result(60), x)
