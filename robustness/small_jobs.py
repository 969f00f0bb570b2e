"""A thousand small jobs beside a large one: what they cost it, and how soon they start."""

from __future__ import annotations

from benchmarks import small_jobs
from benchmarks.results import Result
from robustness.scale import Scale


def measure(scale: Scale) -> Result:
    return small_jobs.measure_counts(
        scale.of(20, 1000, 1000), scale.of(1024, 12288, 12288), scale.of(1, 1, 3)
    )
