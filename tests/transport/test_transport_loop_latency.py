import functools

from hypothesis import given
from hypothesis import strategies as st

from hetsched.transport.event_loop.loop_latency import LoopLatency, callback_name


def nothing() -> None:
    """Do nothing."""


@given(st.lists(st.floats(1e-8, 1e3), min_size=1, max_size=200))
def test_quantiles_are_at_most_a_quarter_too_high(waits: list[float]) -> None:
    latency = LoopLatency()
    for wait in waits:
        latency.record(wait, 0.0, nothing)

    snapshot = latency.snapshot()

    median = sorted(waits)[(len(waits) + 1) // 2 - 1]
    assert snapshot.count == len(waits)
    assert snapshot.max == max(waits)
    assert median * (1 - 1e-6) - 1e-9 <= snapshot.p50 <= max(median * 1.25 + 2e-9, 1e-8)


def test_the_longest_callback_is_named() -> None:
    latency = LoopLatency()
    latency.record(0.0, 0.5, functools.partial(nothing))
    latency.record(0.0, 0.1, latency.reset)

    assert latency.snapshot().longest_callback == 0.5
    assert latency.snapshot().longest_name == "nothing"


def test_impossible_times_are_counted_as_none() -> None:
    latency = LoopLatency()
    for wait in (-1.0, 0.0, 1e300, float("nan")):
        latency.record(wait, 0.0, nothing)

    assert latency.snapshot().p50 == 0.0


def test_a_reset_forgets_everything() -> None:
    latency = LoopLatency()
    latency.record(1.0, 1.0, nothing)
    latency.reset()

    assert latency.snapshot().count == 0
    assert latency.snapshot().max == 0.0


def test_methods_and_partials_are_named_by_where_they_are_defined() -> None:
    assert callback_name(functools.partial(LoopLatency().snapshot)) == "LoopLatency.snapshot"
