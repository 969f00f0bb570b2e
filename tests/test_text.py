"""Text of others on a terminal, in a log or in JSON: nothing that a terminal would obey."""

from __future__ import annotations

import json
import logging

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hetsched.cli.logs import OneLineFormatter
from hetsched.text import clean, clean_json, columns

HOSTILE = [
    "\x1b]0;title\x07", "\x1b[2J", "\x9b31m", "\x00", "a\rb", "a\bb", "\x7f", "\u202egpj.exe",
    "\u2066\u2069", "\u2028", "\ud800", "\ufeff", "\U000e0041",
]  # fmt: skip


@pytest.mark.parametrize("text", [*HOSTILE, "a\nb"])
def test_cleaned_text_is_one_printable_line(text: str) -> None:
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
