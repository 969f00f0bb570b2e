from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hetsched.text import clean, columns, number, seconds_column

from .conftest import Call


@given(st.text())
def test_whatever_is_cleaned_can_be_printed_on_one_line(text: str) -> None:
    assert clean(text).isprintable()


def test_a_hostile_cell_is_one_line() -> None:
    assert columns(("a",), [("x\n\x1b[2J",)]) == ["a", "x\\n\\x1b[2J"]


@pytest.mark.parametrize(
    ("values", "texts"),
    [
        ([0.0214, 0.00951, None], ["0.0214", "0.0095", "-"]),
        ([12.34, 1.0], ["12.3", "1.0"]),
        ([1234.5], ["1234"]),
        ([0.0, None], ["0.000", "-"]),
        ([float("nan"), 1.0], ["nan", "1.00"]),
    ],
)
def test_seconds_have_the_decimals_of_the_largest(
    values: list[float | None], texts: list[str]
) -> None:
    assert seconds_column(values) == texts


@given(st.floats(min_value=1e-3, max_value=1e15))
def test_numbers_never_have_an_exponent(value: float) -> None:
    assert "e" not in number(value)


def test_a_terminal_without_unicode_gets_escapes(
    shell: Call, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYTHONIOENCODING", "ascii")
    Path("µ.toml").write_text('[[device]]\nkind = "cpu"\n')
    assert shell("config", "path", "µ.toml").out.endswith("\\xb5.toml\n")
    assert "\\xb5\\u2014.toml" in shell("config", "path", "µ—.toml").error


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
