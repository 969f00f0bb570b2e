"""Text of others on a terminal, in a log or in JSON: nothing that a terminal would obey."""

from __future__ import annotations

import json
import logging

from hypothesis import given
from hypothesis import strategies as st

from hetsched.cli.logs import OneLineFormatter
from hetsched.text import clean, clean_json, columns, number, seconds_column

HOSTILE = [
    "\x1b]0;title\x07", "\x1b[2J", "\x9b31m", "\x00", "a\rb", "a\bb", "\x7f", "\u202egpj.exe",
    "\u2066\u2069", "\u2028", "\ud800", "\ufeff", "\U000e0041",
]  # fmt: skip


def test_hostile_text_is_one_printable_line() -> None:
    for text in (*HOSTILE, "a\nb"):
        assert clean(f"x{text}y").isprintable()
        assert all(line.isprintable() for line in columns(["head"], [[text]]))


def test_ordinary_text_is_left_alone() -> None:
    for text in ("fft 256x512x512", "Größe 大きさ 😀", "/tmp/a b.npy"):
        assert clean(text) == clean_json(text) == text


@given(st.text(max_size=30))
def test_cleaned_json_is_printable_and_means_the_same(text: str) -> None:
    document = json.dumps({"label": text}, ensure_ascii=False)
    cleaned = clean_json(document)
    assert cleaned.isprintable()
    assert json.loads(cleaned) == {"label": text}


@given(st.text(max_size=40))
def test_a_log_entry_is_one_line_whatever_it_quotes(text: str) -> None:
    record = logging.LogRecord("hetsched", logging.INFO, "", 1, "label %s", (text,), None)
    assert OneLineFormatter(debug=False).format(record).isprintable()


def test_seconds_have_the_decimals_of_the_largest() -> None:
    assert seconds_column([0.0214, 0.00951, None]) == ["0.0214", "0.0095", "-"]
    assert seconds_column([1234.5]) == ["1234"]
    assert seconds_column([0.0, None]) == ["0.000", "-"]
    assert seconds_column([float("nan"), 1.0]) == ["nan", "1.00"]


@given(st.floats(min_value=1e-3, max_value=1e15))
def test_numbers_never_have_an_exponent(value: float) -> None:
    assert "e" not in number(value)


def test_headings_are_wrapped_only_where_a_table_is_too_wide() -> None:
    header, rows = ("device", "after the last one", "n"), [("cpu0", "1.0 %", "7")]
    assert columns(header, rows, width=29) == columns(header, rows)
    assert columns(header, rows, width=28) == [
        "        after",
        "          the",
        "         last",
        "device    one  n",
        "cpu0    1.0 %  7",
    ]
