"""The model of an emulated device's engines."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hetsched.devices.accelerator.engines import Engines, Operation

durations = st.lists(
    st.tuples(*(st.floats(0.01, 10, allow_subnormal=False) for _ in range(3))),
    min_size=1,
    max_size=8,
)


def chain(engines: Engines, times: list[tuple[float, float, float]]) -> list[list[Operation]]:
    """Copy in, compute, copy out for each of `times`."""
    rows = []
    for h2d, compute, d2h in times:
        copy_in = Operation("h2d", h2d)
        work = Operation("compute", compute, after=[copy_in])
        rows.append([copy_in, work, Operation("d2h", d2h, after=[work])])
        for operation in rows[-1]:
            engines.issue(operation)
    return rows


def span(operation: Operation) -> tuple[float, float]:
    assert operation.started is not None and operation.ended is not None
    return operation.started, operation.ended


def run(engines: Engines) -> None:
    for _ in engines.advance(math.inf):
        pass


@given(durations)
def test_without_contention_every_operation_lasts_what_it_costs(
    times: list[tuple[float, float, float]],
) -> None:
    engines = Engines(2, (1.0, 1.0))

    rows = chain(engines, times)
    run(engines)

    for row, costs in zip(rows, times, strict=True):
        for operation, cost in zip(row, costs, strict=True):
            start, end = span(operation)
            assert end - start == pytest.approx(cost)


@given(durations, st.floats(0.1, 1), st.floats(0.1, 1))
def test_contention_never_makes_anything_faster(
    times: list[tuple[float, float, float]], h2d: float, d2h: float
) -> None:
    engines, free = Engines(2, (h2d, d2h)), Engines(2, (1.0, 1.0))

    rows, best = chain(engines, times), chain(free, times)
    run(engines)
    run(free)

    assert span(rows[-1][-1])[1] >= span(best[-1][-1])[1] - 1e-9


@given(durations)
def test_with_no_copy_engine_the_end_is_the_sum_of_all(
    times: list[tuple[float, float, float]],
) -> None:
    engines = Engines(0, (0.5, 0.5))

    rows = chain(engines, times)
    run(engines)

    assert span(rows[-1][-1])[1] == pytest.approx(sum(map(sum, times)))


def test_advancing_in_steps_changes_nothing() -> None:
    times = [(1.0, 2.0, 1.5), (2.0, 0.5, 1.0), (1.0, 1.0, 3.0)]
    once, stepped = Engines(2, (0.6, 0.7)), Engines(2, (0.6, 0.7))

    rows, stepped_rows = chain(once, times), chain(stepped, times)
    run(once)
    for tick in range(200):
        list(stepped.advance(tick / 10))

    ends = [span(operation)[1] for row in rows for operation in row]
    assert [span(op)[1] for row in stepped_rows for op in row] == pytest.approx(ends)


def test_an_operation_whose_work_is_not_done_is_late() -> None:
    engines = Engines(2, (1.0, 1.0))
    operation = Operation("compute", 1.0, is_ready=False)
    engines.issue(operation)
    list(engines.advance(2.0))

    engines.done(operation, 3.0)
    list(engines.advance(4.0))

    assert operation.is_late
    assert span(operation) == (0.0, 3.0)
