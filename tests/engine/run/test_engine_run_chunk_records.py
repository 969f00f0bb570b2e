"""Records of chunks: bounded, with exact sums."""

from __future__ import annotations

import tracemalloc

from hetsched.device import ChunkTimes
from hetsched.engine.run.compute import MAX_RECORDS, Record, add_record


def record(number: int, *, copies: bool = False) -> ChunkTimes:
    start = float(number)
    return ChunkTimes(
        copy_in=(start, start + 0.1) if copies else None,
        compute=(start + 0.1, start + 0.9),
        copy_out=(start + 0.9, start + 1.0) if copies else None,
        late=1,
        busy=0.5,
        cold=number == 0,
    )


def test_units_times_and_counts_of_very_many_stay_exact() -> None:
    records: list[Record] = []
    for number in range(10 * MAX_RECORDS + 1):
        add_record(records, 7, record(number, copies=True))
    assert len(records) <= MAX_RECORDS
    assert sum(units for units, _ in records) == 7 * (10 * MAX_RECORDS + 1)
    assert min(times.start for _, times in records) == 0.0
    assert max(times.end for _, times in records) == 10 * MAX_RECORDS + 1.0
    assert sum(times.late for _, times in records) == 10 * MAX_RECORDS + 1
    assert records[0][1].cold and not records[-1][1].cold
    assert sum(times.busy or 0.0 for _, times in records) == 0.5 * (10 * MAX_RECORDS + 1)


def test_records_of_a_long_run_take_less_than_a_mebibyte() -> None:
    records: list[Record] = []
    tracemalloc.start()
    for number in range(36_000):
        add_record(records, 1000 + number, record(number))
    held, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert held < 1 << 20
