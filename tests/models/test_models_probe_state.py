"""When a device without a share is probed."""

import pytest

from hetsched.models.evidence.probe_state import MAX_REPEATS, ProbeState


def probed_after(runs: int) -> list[int]:
    """The runs without a share that probe, if each probe takes as long as predicted."""
    state, probed = ProbeState(), []
    for run in range(runs):
        if state.is_due:
            probed.append(run)
            state = state.after_probe(1.0)
        else:
            state = state.after_idle_run()
    return probed


def test_intervals_double_up_to_eight_runs() -> None:
    assert probed_after(40) == [1, 3, 7, 15, 23, 31, 39]


@pytest.mark.parametrize("ratio", [0.7, 1.4])
def test_a_probe_that_contradicts_the_model_is_repeated_at_once(ratio: float) -> None:
    state = ProbeState().after_idle_run().after_probe(ratio)

    assert state.is_contradicted
    assert state.is_due
    assert not state.after_probe(1.1).is_due


def test_repeats_end_even_if_nothing_is_decided() -> None:
    state, repeats = ProbeState(1).after_probe(2.0), 0
    while state.is_due:
        state, repeats = state.after_probe(2.0), repeats + 1

    assert repeats == MAX_REPEATS
    assert (state.probes, state.interval) == (1, 2)
