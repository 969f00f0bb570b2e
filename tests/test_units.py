"""Sizes, times, rates and extents as people write them."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hetsched.errors import UsageError
from hetsched.units import (
    counted,
    format_bytes,
    format_seconds,
    parse_extent,
    parse_rate,
    parse_size,
    parse_time,
)

FFT = ("COUNT", "ROWS", "COLS")


def test_sizes() -> None:
    sizes = {
        "4096": 4096, "0": 0, "12B": 12, "64MiB": 64 << 20, "4G": 4 << 30, "4k": 4096,
        "1.5GB": 1_500_000_000, "2 TB": 2 * 10**12, "1e3": 1000, " 1KiB ": 1024,
    }  # fmt: skip
    assert {text: parse_size(text) for text in sizes} == sizes


def test_times() -> None:
    times = {"2": 2, "30us": 30e-6, "4 ms": 4e-3, "5ns": 5e-9, "10m": 600, "1.5h": 5400}
    assert {text: parse_time(text) for text in times} == pytest.approx(times, rel=1e-12)


def test_rates() -> None:
    rates = {"1GB/s": (1e9, "B"), "1GiB/s": (2.0**30, "B"), "6Gflop/s": (6e9, "flop")}
    assert {text: parse_rate(text) for text in rates} == rates


@pytest.mark.parametrize(
    ("parse", "texts", "message"),
    [
        (parse_size, ["", "MiB", "-1", "4 X", "1.5.2", "64MiBs", "٤", "inf", "nan"],
         "is not a size; examples"),
        (parse_time, ["", "s", "-1s", "4 S", "1 week", "4mss"], "is not a time; examples"),
        (parse_rate, ["1GB", "GB/s", "1 unit/s", "-1GB/s", "0GB/s"], "rate"),
        (parse_rate, ["1e400B/s"], "finite"),
        (parse_size, ["1e400", "1e18T"], "more than"),
        (parse_time, ["1e400"], "more than"),
    ],
)  # fmt: skip
def test_what_is_none_is_refused(parse: Any, texts: list[str], message: str) -> None:
    for text in texts:
        with pytest.raises(UsageError, match=message):
            parse(text)


@given(st.lists(st.integers(1, 10**9), min_size=3, max_size=3))
def test_extents(numbers: list[int]) -> None:
    assert parse_extent("x".join(map(str, numbers)), FFT) == tuple(numbers)


@pytest.mark.parametrize(
    ("text", "what"),
    [
        ("", "needs COUNTxROWSxCOLS, got 1 numbers; example: 256x512x512"),
        ("256x512", "got 2 numbers"),
        ("256x512x512x1", "got 4 numbers"),
        ("0x512x512", "COUNT must be at least 1"),
        ("256x512x0", "COLS must be at least 1"),
        ("-1x512x512", r"'-1' is not a number \(column 1\)"),
        ("256x51Ox512", r"'51O' is not a number \(column 5\); did you mean 510\?"),
        ("256x512x5l2", r"column 9\); did you mean 512"),
        ("256xx512", r"'' is not a number \(column 5\)"),
        ("25⁶x512x512", "is not a number"),
        ("٢٥٦x512x512", "is not a number"),
        ("256 x512x512", "is not a number"),
    ],
)
def test_errors_of_extents_name_the_problem(text: str, what: str) -> None:
    with pytest.raises(UsageError, match=what):
        parse_extent(text, FFT)


def test_formatted_bytes() -> None:
    texts = {
        0: "0 B", 1023: "1023 B", 1024: "1 KiB", 512 << 20: "512 MiB", 1000 << 20: "1000 MiB",
        1.5 * 2**30: "1.5 GiB", 3 << 40: "3 TiB",
    }  # fmt: skip
    assert {count: format_bytes(count) for count in texts} == texts


@given(st.integers(0, 2**60))
def test_formatted_bytes_are_accurate_and_without_exponents(count: int) -> None:
    text = format_bytes(count)

    assert "e" not in text
    assert parse_size(text) == pytest.approx(count, rel=0.006, abs=0.5)


def test_formatted_seconds() -> None:
    texts = {
        0.000085: "85 us", 0.0216: "21.6 ms", 1.234: "1.23 s", 0.9999: "1000 ms", 59.0: "59 s",
        119.7: "2 min", 61: "1 min 1 s", 7321: "2 h 2 min", 190_000: "2 d 5 h",
    }  # fmt: skip
    assert {seconds: format_seconds(seconds) for seconds in texts} == texts


@given(st.floats(1e-6, 1e6))
def test_formatted_seconds_have_no_exponents(seconds: float) -> None:
    text = format_seconds(seconds)

    assert "e" not in text
    assert "min 60" not in text


def test_one_thing_is_not_many() -> None:
    assert [counted(n, "run") for n in (0, 1, 2)] == ["0 runs", "1 run", "2 runs"]
