"""The history of one key: changes of speed and contended runs."""

import math
import random

import pytest

from hetsched.models.evidence.history import History
from hetsched.models.evidence.samples import Sample


def run(units: int, seconds: float, contended: bool = False) -> list[Sample]:
    return [
        Sample("compute", units, seconds, contended),
        Sample("total", units, seconds, contended),
    ]


def history_of(*runs: list[Sample]) -> History:
    history = History()
    for samples in runs:
        record(history, samples)
    return history


def record(history: History, samples: list[Sample]) -> list[Sample]:
    """Add a run; return what is stored of it."""
    recorded = history.with_ratios(samples)
    history.add(recorded)
    return history.stored(recorded)


def seconds(history: History, units: float) -> float:
    model = history.model()
    assert model is not None
    return float(model.time(units))


QUIET = [run(10, 1.0)] * 5


def test_contended_runs_do_not_count_if_there_are_others() -> None:
    assert seconds(history_of(*QUIET, run(10, 2.0, True), run(30, 9.0, True)), 30) == 3.0


def test_contended_runs_count_if_there_are_no_others() -> None:
    history = history_of(run(10, 2.0, True))
    assert seconds(history, 10) == 2.0
    record(history, run(10, 1.0))
    assert seconds(history, 10) == 1.0
    assert history.rewritten


@pytest.mark.parametrize("runs", range(3, 12))
def test_contention_that_lasts_is_measured_against_runs_without(runs: int) -> None:
    history = history_of(*QUIET, *[run(10, 2.0, True)] * runs)
    assert (history.contention, seconds(history, 10)) == (2.0, 2.0)


def test_three_contended_runs_in_a_row_slow_the_model_down_until_two_are_not() -> None:
    history = history_of(*QUIET, *[run(10, 2.0, True)] * 2)
    assert (history.contention, seconds(history, 10)) == (1.0, 1.0)
    record(history, run(20, 4.0, True))
    assert (history.contention, seconds(history, 10), seconds(history, 40)) == (2.0, 2.0, 8.0)
    record(history, run(20, 2.0))
    assert (history.contention, seconds(history, 10), seconds(history, 40)) == (2.0, 2.0, 8.0)
    record(history, run(20, 2.0))
    assert (history.contention, seconds(history, 10), seconds(history, 40)) == (1.0, 1.0, 4.0)


def test_contended_runs_are_not_a_change_of_speed() -> None:
    history = history_of(*QUIET)
    for _ in range(9):
        record(history, run(10, 2.0, True))
        assert history.change is None


def test_only_the_ratios_of_contended_runs_are_stored_if_there_are_others() -> None:
    history = History()
    assert record(history, run(10, 3.0, True))[-2:] == run(10, 3.0, True)
    assert record(history, run(10, 1.0))[-2:] == run(10, 1.0)
    assert record(history, run(10, 2.0, True)) == [Sample("contention", 1, 2.0)]


@pytest.mark.parametrize("factor", [2.0, 0.5])
def test_a_change_is_reported_in_the_run_that_confirms_it(factor: float) -> None:
    history = history_of(*QUIET, *[run(10, factor)] * 2)
    assert history.change is None
    record(history, run(10, factor))
    assert history.change is not None
    assert history.change.factor == pytest.approx(factor)
    assert history.rewritten
    record(history, run(10, factor))
    assert history.change is None


def test_a_run_counts_once_however_many_chunks_it_had() -> None:
    chunks = [Sample("compute", size, size * 0.1) for size in (4, 5, 6, 7)]
    slow = [Sample("compute", size, size * 2.0) for size in (4, 5, 6, 7)]
    copies = [Sample("h2d", 4, 0.1), Sample("total", 22, 3.0)]
    history = history_of(*[[*chunks, *copies]] * 5, [*slow, *copies])
    model = history.model()
    assert model is not None
    assert float(model.compute.time(5)) == pytest.approx(0.5)
    assert history.change is None


def test_its_samples_make_an_equal_history() -> None:
    history = history_of(*QUIET, run(20, 3.0), *[run(10, 2.0)] * 3, run(7, 1.5))
    other = History(9, history.samples())
    for units in (5, 7, 10, 20, 50):
        assert seconds(other, units) == seconds(history, units)


STEADY = [run(20, 20.0)] * 10


def test_larger_sizes_beyond_a_cache_are_no_change_of_speed() -> None:
    history = history_of(*STEADY)
    for size in (29, 30, 28, 31, 29):
        record(history, run(size, 1.35 * size))
        assert history.change is None
    assert seconds(history, 20) == pytest.approx(20, rel=0.05)
    assert seconds(history, 29) == pytest.approx(1.35 * 29, rel=0.05)


@pytest.mark.parametrize("seed", range(10))
def test_nor_are_they_with_noise(seed: int) -> None:
    noise = random.Random(seed)
    history = History()
    for size, pace in [*[(20, 1.0)] * 10, (29, 1.35), (30, 1.35), (28, 1.35), (29, 1.35)]:
        record(history, run(size, size * pace * math.exp(noise.gauss(0, 0.02))))
        assert history.change is None
    assert seconds(history, 20) == pytest.approx(20, rel=0.05)


@pytest.mark.parametrize("sizes", [(20, 20, 20), (20, 14, 15), (20, 15, 14), (20, 29, 30)])
def test_a_device_half_as_fast_is_detected_after_three_runs(sizes: tuple[int, ...]) -> None:
    history = history_of(*STEADY)
    for size in sizes:
        assert history.change is None
        record(history, run(size, 2.0 * size))
    assert history.change is not None
    assert history.change.factor == pytest.approx(2)


def linked_run(sizes: tuple[int, ...], slowness: float = 1.0) -> list[Sample]:
    """Chunks of a kernel in waves of 16 units."""
    samples = [Sample("h2d", size, 1.0 + size) for size in sizes]
    return samples + [
        Sample("compute", size, slowness * (1.0 + -(-size // 16) * 16)) for size in sizes
    ]


def test_sizes_on_either_side_of_a_step_are_no_change_of_speed() -> None:
    history = history_of(linked_run((86, 43, 21, 11, 5)), linked_run((16, 40, 64, 12)))
    for _ in range(4):
        record(history, linked_run((15, 16)))
        assert history.change is None


def test_a_slower_kernel_with_steps_is_detected_after_three_runs() -> None:
    history = history_of(*[linked_run((8, 16, 32))] * 4, linked_run((8, 16, 32), 2.0))
    record(history, linked_run((8, 15, 30), 2.0))
    assert history.change is None
    record(history, linked_run((7, 15, 30), 2.0))
    assert history.change is not None
