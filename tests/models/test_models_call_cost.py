"""The cost of a call of a core's kernel, from chunks of different sizes."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hetsched.device import ChunkTimes
from hetsched.models.call_cost import call_samples, proven_cost
from hetsched.models.evidence.history import History
from hetsched.models.evidence.samples import Sample, TimedPhases, run_samples

FIRST_SHARE = (250, *(62, 250) * 4, *(250,) * 10)
TAIL = (*(36,) * 80, 30, 16, 8, 4, 2, 1, 1)


def times(sizes: tuple[int, ...], call: float, noise: float = 0.0, seed: int = 0) -> TimedPhases:
    """Return chunks of 1 ms per unit and `call` ms per call, one after the other."""
    errors = np.random.default_rng(seed).normal(1.0, noise, len(sizes))
    seconds = [(call + units) * 1e-3 * error for units, error in zip(sizes, errors, strict=True)]
    ends = np.cumsum(seconds).tolist()
    spans = zip([0.0, *ends], ends, strict=False)
    return [(n, ChunkTimes(compute=span)) for n, span in zip(sizes, spans, strict=True)]


def proven(sizes: tuple[int, ...], call: float, noise: float = 0.0, seed: int = 0) -> float:
    chunks = times(sizes, call, noise, seed)
    seconds = np.array([timed.compute[1] - timed.compute[0] for _, timed in chunks])
    return proven_cost(np.array(sizes, dtype=np.float64), seconds)


def run(sizes: tuple[int, ...], call: float) -> list[Sample]:
    chunks = times(sizes, call)
    seconds = chunks[-1][1].end
    return run_samples(chunks, (), sum(sizes), seconds, link=False) + call_samples(chunks)


def learnt(*runs: list[Sample]) -> History:
    history = History()
    for samples in runs:
        history.add(history.without_calls(samples))
    return history


@pytest.mark.parametrize("sizes", [FIRST_SHARE, TAIL])
@pytest.mark.parametrize("call", [0.0, 10.0, 42.0])
def test_without_noise_the_cost_is_exact(sizes: tuple[int, ...], call: float) -> None:
    assert proven(sizes, call) == pytest.approx(call, abs=1e-6)


def test_a_cost_of_less_than_a_percent_of_the_largest_chunk_does_not_count() -> None:
    assert proven(TAIL, 0.3) == 0.0
    assert proven(TAIL, 0.4) == pytest.approx(0.4)


def test_kernels_whose_time_does_not_depend_on_the_size_have_a_limited_cost() -> None:
    seconds = np.ones(8)
    assert proven_cost(np.array([8.0] * 4 + [2.0] * 4), seconds) == 16 * 8


def test_measured_times_of_a_product_with_a_right_side_of_8192_rows() -> None:
    units = np.array([9, 9, 9, 9, 18, 18, 36, 36, 36, 36], dtype=np.float64)
    seconds = np.array([62, 63, 61.5, 62, 74, 75, 95, 96, 94, 95]) * 1e-3
    assert proven_cost(units, seconds) == pytest.approx(41, abs=2)


@given(st.integers(0, 10_000), st.floats(0.0, 0.3), st.sampled_from([FIRST_SHARE, TAIL]))
def test_noise_invents_no_cost_that_matters(
    seed: int, noise: float, sizes: tuple[int, ...]
) -> None:
    costs = sorted(proven(sizes, 0.0, noise, 3 * seed + run) for run in range(3))
    assert costs[1] <= 0.1 * max(sizes)


@given(st.integers(0, 10_000), st.floats(1.0, 100.0))
def test_noise_hides_some_of_a_cost_but_adds_little(seed: int, call: float) -> None:
    assert proven(TAIL, call, 0.03, seed) <= 1.1 * call


def test_an_interrupted_chunk_changes_nothing() -> None:
    chunks = times(TAIL, 20.0)
    seconds = np.array([timed.compute[1] - timed.compute[0] for _, timed in chunks])
    seconds[[40, 83]] *= 20
    assert proven_cost(np.array(TAIL, dtype=np.float64), seconds) == pytest.approx(20.0)


def test_chunks_of_similar_sizes_show_no_cost() -> None:
    (size,) = call_samples(times((20, 20, 20, 20, 11, 11, 11), 5.0))
    assert (size.curve, size.seconds) == ("call_size", pytest.approx(113 / 7))


def test_the_first_call_of_a_kernel_does_not_count() -> None:
    (units, first), *rest = times(TAIL, 20.0)
    cold = ChunkTimes(compute=(first.start - 5.0, first.end), cold=True)
    (_, cost) = call_samples([(units, cold), *rest])
    assert cost.seconds == pytest.approx(20.0, abs=0.01)


def test_other_processes_on_the_core_hide_no_cost() -> None:
    waits = iter(np.random.default_rng(1).exponential(0.1, len(TAIL)).tolist())
    shared = [
        (
            n,
            ChunkTimes(
                compute=(timed.start, timed.end + next(waits)), busy=timed.end - timed.start
            ),
        )
        for n, timed in times(TAIL, 20.0)
    ]
    (_, cost) = call_samples(shared)
    assert cost.seconds == pytest.approx(20.0)


def test_a_share_is_learnt_without_its_calls() -> None:
    model = learnt(run(FIRST_SHARE, 50.0)).model()
    assert model is not None
    assert model.call_units == pytest.approx(50.0)
    assert model.time(sum(FIRST_SHARE)) == pytest.approx(sum(FIRST_SHARE) * 1e-3)


def test_earlier_shares_are_scaled_when_the_cost_becomes_known() -> None:
    even = (36,) * 80
    model = learnt(run(even, 50.0), run(even, 50.0), run(TAIL, 50.0)).model()
    assert model is not None
    assert model.time(sum(even)) == pytest.approx(sum(even) * 1e-3, rel=0.01)
    assert model.variation == 0.0


def test_shares_cut_in_another_way_take_as_long_without_their_calls() -> None:
    history = learnt(run(TAIL, 50.0), run(TAIL, 50.0), run((288,) * 10, 50.0))
    model = history.model()
    assert model is not None
    assert history.change is None
    assert model.time(2880) == pytest.approx(2.88, rel=0.01)


def test_two_runs_settle_that_there_is_a_cost_and_five_that_there_is_none() -> None:
    settled = {0.0: 5, 50.0: 2}
    for call, count in settled.items():
        runs = [run(TAIL, call)] * count
        before, after = learnt(*runs[1:]).model(), learnt(*runs).model()
        assert before is not None and not before.has_settled_calls
        assert after is not None and after.has_settled_calls


def test_the_cost_survives_storage() -> None:
    history = learnt(run(TAIL, 50.0), run(TAIL, 50.0))
    restored, model = History(2, history.samples()).model(), history.model()
    assert restored is not None and model is not None
    assert (restored.call_units, restored.has_settled_calls) == (model.call_units, True)
    assert restored.time(1000) == pytest.approx(model.time(1000))
