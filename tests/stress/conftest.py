"""Faults in real daemons: `make stress`, and ten times as many in `make stress-long`."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from typing import Any

import pytest

SCALE = float(os.environ.get("HETSCHED_STRESS", "1"))


class Stress:
    def __init__(self, record: Callable[[str, object], None]) -> None:
        self.record = record

    def scaled(self, count: float) -> int:
        """Return the count, or seconds, of this run, as `make stress` has `count`."""
        return max(1, round(count * SCALE))

    def record_all(self, figures: Mapping[str, object]) -> None:
        for what, value in figures.items():
            self.record(what, value)


@pytest.fixture
def stress(record_property: Callable[[str, object], None]) -> Stress:
    return Stress(record_property)


def pytest_terminal_summary(terminalreporter: Any) -> None:
    """Print what the scenarios recorded, as rows of the table in docs/robustness.md."""
    for report in terminalreporter.getreports("passed") + terminalreporter.getreports("failed"):
        if report.when == "call" and report.user_properties:
            name = report.head_line.removeprefix("test_").replace("_", " ")
            figures = (f"{what} {_text(value)}" for what, value in report.user_properties)
            terminalreporter.write_line(f"| {name} | {'; '.join(figures)} |")


def _text(value: Any) -> str:
    return f"{value:.3g}" if isinstance(value, float) else f"{value:,}"
