"""Every scenario of `robustness/` holds its bars with small counts."""

from __future__ import annotations

from pathlib import Path

import pytest

from robustness.__main__ import PAGE, SCENARIOS
from robustness.scale import TEST

TIMED = ("seconds", "ms", "per second")
"""Bars with these words are about time; only `make robust` checks them."""


@pytest.mark.parametrize("name", SCENARIOS)
def test_a_scenario_holds_with_small_counts(name: str) -> None:
    result = SCENARIOS[name](TEST)

    missed = [bar.text() for bar in result.bars if not bar.holds and not _is_timed(bar.what)]
    assert result.bars and not missed, f"{result.text()}\n{result.data}"


def test_every_scenario_has_a_place_in_the_record() -> None:
    page = Path(PAGE).read_text(encoding="utf-8")

    assert [name for name in SCENARIOS if f"<!-- {name} begin -->" not in page] == []


def _is_timed(what: str) -> bool:
    return any(word in what for word in TIMED)
