"""How much a core's speed varies from run to run: learnt, kept, and used for its samples."""

import math
import random
from pathlib import Path

import pytest

from hetsched.device import ChunkTimes
from hetsched.models.evidence.history import History
from hetsched.models.evidence.run_medians import run_medians
from hetsched.models.evidence.samples import Sample, run_samples
from hetsched.models.variation import MAX_RUNS, RunVariation
from hetsched.store.model_records import ModelKey
from hetsched.store.model_store import ModelStore
from tests.store.learning import load, observe

KEY = ModelKey("fft", "", "numpy", "1", "cpu0 test", "memory")


def times(start: float, end: float, **changes: bool) -> ChunkTimes:
    return ChunkTimes(compute=(start, end), **changes)


def observed(history: History, ratios: list[float], *, contended: bool = False) -> History:
    for ratio in ratios:
        samples = [Sample("total", 100, 0.1 * ratio, contended)]
        history.add(history.with_ratios(run_medians(samples)))
        history.model()
    return history


def deviation(history: History) -> float:
    model = history.model()
    assert model is not None
    return model.variation


def test_the_deviation_of_the_last_runs_is_learnt() -> None:
    rng = random.Random(1)
    ratios = [math.exp(rng.gauss(0.0, 0.1)) for _ in range(40)]
    assert deviation(observed(History(), ratios)) == pytest.approx(0.1, rel=0.4)
    assert deviation(observed(History(), [1.0] * 10)) == 0.0


def test_few_runs_show_nothing() -> None:
    assert deviation(observed(History(), [1.0, 1.5, 0.8])) == 0.0


def test_contended_runs_count() -> None:
    history = observed(History(), [1.0] * 4)
    for _ in range(4):
        observed(history, [1.9], contended=True)
        observed(history, [1.0])
    assert deviation(history) > 0.2


def test_a_single_hiccup_counts_as_twice_the_time_and_is_forgotten() -> None:
    variation = RunVariation()
    for ratio in [20.0, *[1.0] * (MAX_RUNS - 1)]:
        variation.add(ratio)
    assert variation.deviation == pytest.approx(math.log(2) / math.sqrt(MAX_RUNS), rel=0.05)
    variation.add(1.0)
    assert variation.deviation == 0.0


def test_a_restored_history_varies_as_before() -> None:
    history = observed(History(), [1.0, 1.0, 1.2, 0.9, 1.1, 0.8])
    assert deviation(History(6, history.samples())) == pytest.approx(deviation(history))


def test_the_variation_is_kept_in_the_file_also_of_contended_runs(tmp_path: Path) -> None:
    path = tmp_path / "models.db"
    store = ModelStore(path)
    for run in range(12):
        is_slow = run > 4 and run % 2 == 1
        observe(store, KEY, [Sample("total", 100, 0.2 if is_slow else 0.1, is_slow)], float(run))
    before = load(store, KEY)
    store.close()
    after = load(ModelStore(path), KEY)
    assert before is not None
    assert after is not None
    assert after.variation == pytest.approx(before.variation)
    assert after.variation > 0.2


def test_a_core_that_took_more_reports_its_pace_at_its_planned_share() -> None:
    chunks = [(50, times(0.0, 0.5)), (70, times(0.5, 1.2, taken=True))]
    samples = run_samples(chunks, [(50, 50)], 120, 1.2, link=False, planned=100)
    assert samples == [Sample("compute", 50, 0.5), Sample("total", 100, pytest.approx(1.0))]


def test_cold_chunks_don_t_count_for_that_pace() -> None:
    chunks = [(50, times(0.0, 5.0, cold=True)), (30, times(5.0, 5.3)),
              (20, times(5.3, 5.5, taken=True))]  # fmt: skip
    samples = run_samples(chunks, [(100,)], 100, 5.5, link=False, planned=90)
    assert samples[-1] == Sample("total", 90, pytest.approx(0.9))
