"""A disk in memory for SQLite: power cuts with torn and reordered writes, full disks, failures."""

from __future__ import annotations

import functools
import logging
from collections.abc import Callable

from benchmarks.results import Result
from robustness.scale import Scale


def silent(measure: Callable[[Scale], Result]) -> Callable[[Scale], Result]:
    """Run a scenario without the journal's log lines: thousands of expected failures."""

    @functools.wraps(measure)
    def run(scale: Scale) -> Result:
        logger = logging.getLogger("hetsched.store")
        level = logger.level
        logger.setLevel(logging.CRITICAL)
        try:
            return measure(scale)
        finally:
            logger.setLevel(level)

    return run
