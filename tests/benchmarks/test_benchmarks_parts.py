"""Parts of the benchmarks; tests don't run the benchmarks themselves."""

from __future__ import annotations

import math

import pytest

from benchmarks.bandwidth import copy_bandwidth
from benchmarks.peers import numpy_matmul_peer
from benchmarks.split import prediction_error


def test_predictions_wrong_in_both_directions_do_not_cancel() -> None:
    assert prediction_error([0.5, 1.0, 1.5]) == 0.5


def test_a_run_without_a_prediction_is_infinitely_wrong() -> None:
    assert prediction_error([1.0, None, None]) == math.inf
    assert prediction_error([1.0, 1.1, None]) == pytest.approx(0.1)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_the_matrix_peer_checks_what_its_runs_made(dtype: str) -> None:
    run, check = numpy_matmul_peer.make({"shape": (8, 16, 4), "dtype": dtype})
    errors = []
    for _ in range(3):
        run()
        errors.append(check())

    assert max(errors) < (1e-5 if dtype == "float32" else 1e-13)


def test_copies_have_a_rate() -> None:
    assert 0 < copy_bandwidth(1 << 16, 3) < math.inf
