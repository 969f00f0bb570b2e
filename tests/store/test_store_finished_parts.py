"""A job that a crash has interrupted goes on where its outputs are known to be complete."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hetsched.store.output_files import (
    OutputFile,
    common,
    create_output,
    mark_finished,
    merged,
    without,
)

RANGES = st.lists(st.tuples(st.integers(0, 60), st.integers(0, 60))).map(merged)


def opened(path: Path, identity: str = "job 1") -> OutputFile:
    return create_output(str(path), (8, 4), "f8", token="journal-1", identity=identity)


def crashed(path: Path) -> None:
    """Write a half, and end without closing."""
    output = opened(path)
    os.pwrite(output.fd, np.ones((4, 4)).tobytes(), output.offset)
    mark_finished([(output.hidden, output.fd)], "job 1", ((0, 4),))
    os.close(output.fd)


def test_what_is_marked_is_there_after_a_crash(tmp_path: Path) -> None:
    crashed(tmp_path / "y.npy")

    output = opened(tmp_path / "y.npy")
    os.pwrite(output.fd, np.full((4, 4), 2.0).tobytes(), output.offset + 4 * 32)
    output.publish()

    assert output.finished == ((0, 4),)
    assert os.listdir(tmp_path) == ["y.npy"]
    assert np.load(tmp_path / "y.npy")[:, 0].tolist() == [1, 1, 1, 1, 2, 2, 2, 2]


def test_another_job_or_another_input_starts_over(tmp_path: Path) -> None:
    crashed(tmp_path / "y.npy")

    output = opened(tmp_path / "y.npy", "job 1 on another input")

    assert output.finished == ()
    assert not any(os.pread(output.fd, 1000, output.offset))
    output.discard()
    assert os.listdir(tmp_path) == []


@pytest.mark.parametrize("harm", ["cut", "replaced", "unmarked", "garbage", "header"])
def test_a_file_that_is_not_as_noted_is_not_used(tmp_path: Path, harm: str) -> None:
    crashed(tmp_path / "y.npy")
    (hidden,) = tmp_path.glob(".*.part")
    record = hidden.with_name(f"{hidden.name}s")
    match harm:
        case "cut":
            os.truncate(hidden, 200)
        case "replaced":
            raw = hidden.read_bytes()
            hidden.rename(tmp_path / "other")
            hidden.write_bytes(raw)
        case "unmarked":
            record.unlink()
        case "garbage":
            record.write_bytes(b"\xc1 garbage")
        case "header":
            with hidden.open("r+b") as file:
                file.write(b"no array")

    output = opened(tmp_path / "y.npy")

    assert output.finished == ()
    output.discard()


@given(RANGES, RANGES, st.integers(0, 60), st.integers(0, 60))
def test_ranges_are_sets_of_units(
    a: tuple[tuple[int, int], ...], b: tuple[tuple[int, int], ...], first: int, end: int
) -> None:
    def units(ranges: object) -> set[int]:
        return {unit for begin, stop in ranges for unit in range(begin, stop)}  # type: ignore[attr-defined]

    assert units(common([a, b])) == units(a) & units(b)
    assert units(without(first, end, a)) == set(range(first, end)) - units(a)
    assert units(merged([*a, *b])) == units(a) | units(b)
