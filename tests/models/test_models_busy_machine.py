"""Processes that run a single job on a machine that is always, often or sometimes busy."""

from __future__ import annotations

import math
import random
import statistics

import pytest

from hetsched.models.evidence.history import History
from hetsched.models.evidence.samples import Sample

COLD = 1.2
NOISE = 0.05
"""Standard deviation of the logarithm of a run's time."""
JUDGED_FROM = 5
RUNS = 20


def median_error(seed: int, slowdown: float, busy: float, before: int) -> float:
    """Return the median error of predictions, by stored models, of runs in fresh processes.

    Parameters
    ----------
    slowdown : float
        Of a contended run.
    busy : float
        Probability that a run is contended.
    before : int
        Quiet runs of a daemon, before the others.
    """
    noise = random.Random(seed)
    errors: list[float] = []
    stored: list[Sample] = []
    for number in range(before + RUNS):
        history = History(number, stored)
        model = history.model()
        is_fresh = number >= before
        is_contended = is_fresh and noise.random() < busy
        seconds = math.exp(noise.gauss(0, NOISE)) * (slowdown if is_contended else 1.0)
        samples = [Sample("total", 10, seconds, is_contended)]
        if is_fresh:
            seconds *= COLD
            samples.append(Sample("cold", 10, seconds, is_contended))
            if model is not None and number >= before + JUDGED_FROM:
                predicted = float(model.time(10)) * model.cold.ratio(10)
                errors.append(abs(predicted / seconds - 1))
        recorded = history.with_ratios(history.as_warm(samples))
        history.add(recorded)
        added = history.stored(recorded)
        stored = history.samples() if history.rewritten else [*stored, *added]
    return statistics.median(errors)


@pytest.mark.parametrize("before", [0, 8])
@pytest.mark.parametrize("busy", [0.0, 0.1, 0.9, 1.0])
@pytest.mark.parametrize("slowdown", [1.5, 3.0])
def test_predictions_hold(slowdown: float, busy: float, before: int) -> None:
    errors = [median_error(seed, slowdown, busy, before) for seed in range(5)]

    assert statistics.median(errors) <= 0.10


def test_a_quiet_run_without_the_time_of_a_whole_share_leaves_the_contended_ones_in_use() -> None:
    history = History(2, [Sample("total", 10, 3.0, contended=True)] * 2)

    history.add([Sample("compute", 5, 1.0)])
    before = history.model()
    history.add([Sample("total", 10, 2.0)])
    after = history.model()

    assert before is not None and before.total.time(10) == pytest.approx(3.0)
    assert after is not None and after.total.time(10) == pytest.approx(2.0)
