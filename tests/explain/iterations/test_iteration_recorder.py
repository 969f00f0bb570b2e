from __future__ import annotations

import math

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hetsched.explain import recorder as recorder_module
from hetsched.explain.recorder import (
    MAX_MOVES,
    MAX_SPANS,
    IterationRecorder,
    with_used_devices,
)
from tests.explain.iterations.story import SPLITS, PhaseTimes, history, recorded, split_at


def test_each_iteration_of_a_short_run_is_kept() -> None:
    spans = history().spans

    assert [span.first for span in spans] == list(range(1, 61))
    assert [span.rows for span in spans] == [split_at(k) for k in range(1, 61)]
    assert spans[0].seconds == pytest.approx(0.0402)
    assert spans[0].wait[2] == pytest.approx(0.04 - 0.01 - 0.0005)
    assert spans[9].residual == 0.5**10


def test_a_long_run_is_merged_without_losing_time() -> None:
    iterations = 2 * MAX_SPANS + 5
    recorded_history = recorded(iterations).history()

    spans = recorded_history.spans
    assert len(spans) <= MAX_SPANS
    assert [span.first for span in spans[1:]] == [span.last + 1 for span in spans[:-1]]
    assert spans[-1].last == iterations
    total = sum(span.seconds * span.count for span in spans)
    assert total == pytest.approx(recorded_history.seconds)
    assert len({span.count for span in spans[:-1]}) == 1


def test_moves_say_what_was_expected_and_what_came_of_it() -> None:
    first, second = history().moves

    assert (first.after, first.before, first.rows) == (4, SPLITS[0], SPLITS[1])
    assert first.moved == 600
    assert first.reason == "imbalance"
    assert (first.expected_after, first.expected_cost) == (0.0201, 0.005)
    assert first.seconds_before == pytest.approx(0.0402)
    assert first.cost == pytest.approx(0.004)
    assert first.gain == pytest.approx(5 * 0.0402 - 5 * 0.0407 - 0.004)
    assert (second.after, second.iterations) == (9, 51)
    assert second.gain is not None
    assert second.gain > 0


def test_numbers_that_json_lacks_are_unknown() -> None:
    recorder = IterationRecorder(("a",))
    recorder.add(1, (3,), [PhaseTimes(1.0)], math.nan)

    assert recorder.residual is None
    assert msgspec.json.decode(msgspec.json.encode(recorder.history()))["residual"] is None


def test_memory_is_bounded_where_rows_move_each_time() -> None:
    recorder = recorded(2 * MAX_MOVES, lambda k: (k % 7, 7 - k % 7, 0))

    moves = recorder.history().moves
    assert len(moves) <= MAX_MOVES + 1
    assert recorder.moves == recorder.history().omitted_moves + len(moves) == 2 * MAX_MOVES - 1
    assert [moves[0].after, moves[-1].after] == [1, 2 * MAX_MOVES - 1]


def test_rounds_of_a_warm_up_are_forgotten() -> None:
    recorder = IterationRecorder(("a", "b"))
    for rows in ((5, 5), (3, 7), (2, 8)):
        recorder.add(1, rows, [PhaseTimes(1.0)] * 2)
    recorder.add(2, (2, 8), [PhaseTimes(0.5)] * 2)

    history = recorder.history()
    assert [span.rows for span in history.spans] == [(2, 8), (2, 8)]
    assert (history.seconds, history.moves) == (1.5, ())


def test_devices_that_never_had_rows_are_left_out() -> None:
    recorder = IterationRecorder(("a", "team0", "b"))
    recorder.add(1, (5, 0, 5), [PhaseTimes(1.0), None, PhaseTimes(2.0)])
    recorder.add(2, (4, 0, 6), [PhaseTimes(1.0), None, PhaseTimes(2.0)])

    history = with_used_devices(recorder.history())
    assert history.devices == ("a", "b")
    assert history.spans[0].compute == (1.0, 2.0)
    assert (history.moves[0].before, history.moves[0].rows) == ((5, 5), (4, 6))


@given(
    st.lists(st.tuples(st.integers(1, 9), st.none() | st.integers(-1, 60)), max_size=20),
    st.sampled_from([1, 21]),
)
def test_spans_never_overlap_even_after_going_back(
    steps: list[tuple[int, int | None]], first: int
) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(recorder_module, "MAX_SPANS", 6)
        patch.setattr(recorder_module, "MIN_SPANS", 4)
        recorder = IterationRecorder(["cpu0"], first)
    last = first - 1
    for count, saved in steps:
        last += count
        recorder.add(last, (10,), [PhaseTimes(1.0)], count=count)
        if saved is not None:
            recorder.go_back(min(saved, last), max(0, last - saved))
            last = max(0, min(saved, last))

    spans = recorder.history().spans
    ends = [span.last + 1 for span in spans]
    assert [span.first for span in spans[1:]] == ends[:-1]
    assert not spans or (spans[0].first, spans[-1].last) == (recorder.history().first, last)
    assert recorder.history().iterations == last
