"""What a device with its own memory exchanges with the others."""

from __future__ import annotations

from diffusing_workload import Diffusion, DiffusionParams

from hetsched.iterations.home import Part
from hetsched.iterations.row_transfers import RowRange, RowTransfers
from hetsched.workload import Rows

PARAMS = DiffusionParams()
COPY = Diffusion().start(PARAMS)[0]
MEAN, SMOOTH = Diffusion().iteration(PARAMS)
ROWS = Rows(8, 12, 24)


def ranges(copies: list[RowRange]) -> list[tuple[str, int, int]]:
    return [(copy.array.name, copy.first, copy.stop) for copy in copies]


def test_halos_and_whole_arrays_come_from_other_devices_once_after_each_write() -> None:
    transfers = RowTransfers(Diffusion(), PARAMS)
    transfers.on_written(COPY, Part.START, 0)

    first = transfers.to_device(MEAN, Part.ITERATION, 1, ROWS)
    transfers.on_written(MEAN, Part.ITERATION, 1)
    second = transfers.to_device(SMOOTH, Part.ITERATION, 1, ROWS)

    assert ranges(first) == [("u", 7, 8), ("u", 12, 13)]
    assert ranges(second) == [("means", 0, 8), ("means", 12, 24)]


def test_edges_and_own_rows_of_whole_arrays_go_to_other_devices() -> None:
    transfers = RowTransfers(Diffusion(), PARAMS)

    assert ranges(transfers.to_host(SMOOTH, Part.ITERATION, 1, ROWS)) == [
        ("u", 8, 9),
        ("u", 11, 12),
    ]
    assert ranges(transfers.to_host(SMOOTH, Part.ITERATION, 1, Rows(8, 10, 24))) == [("u", 8, 10)]
    assert ranges(transfers.to_host(MEAN, Part.ITERATION, 1, ROWS)) == [("means", 8, 12)]


def test_each_buffer_is_fetched_after_it_was_written() -> None:
    transfers = RowTransfers(Diffusion(), PARAMS)
    transfers.on_written(COPY, Part.START, 0)
    transfers.to_device(MEAN, Part.ITERATION, 1, ROWS)
    transfers.on_written(SMOOTH, Part.ITERATION, 1)

    again = transfers.to_device(MEAN, Part.ITERATION, 1, ROWS)
    following = transfers.to_device(MEAN, Part.ITERATION, 2, ROWS)

    assert again == []
    assert [(copy.buffer, copy.first) for copy in following] == [(1, 7), (1, 12)]


def test_other_rows_need_everything_again() -> None:
    transfers = RowTransfers(Diffusion(), PARAMS)
    transfers.on_written(COPY, Part.START, 0)
    transfers.to_device(MEAN, Part.ITERATION, 1, ROWS)

    transfers.forget()

    assert ranges(transfers.to_device(MEAN, Part.ITERATION, 1, Rows(0, 3, 24))) == [
        ("u", -1, 0),
        ("u", 3, 4),
    ]
