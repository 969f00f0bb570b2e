"""Where a job's arrays are, and whether its devices have them mapped."""

from __future__ import annotations

from collections.abc import Collection
from types import SimpleNamespace
from typing import Any, cast

import pytest

from hetsched.engine.job.arrays import MAX_QUICK_BYTES, JobArrays
from hetsched.transport.device_messages import StoredArray

LARGE, SMALL, FILE = 1, 2, -5
SIZES = {LARGE: MAX_QUICK_BYTES + 1, SMALL: 1 << 20}


def are_mapped(**attached: Collection[int]) -> bool:
    """Whether a job with a large, a small and a file array may start at once on these devices."""
    arena = SimpleNamespace(segment=lambda key: SimpleNamespace(nbytes=SIZES[key]))
    arrays = JobArrays(cast(Any, None), cast(Any, arena))
    for key in (LARGE, SMALL, FILE):
        arrays.stored.append(StoredArray(array="x", key=key, shape=(1,), dtype="<f8"))
    fleet = SimpleNamespace(attached=lambda device: attached[device])
    return arrays.are_mapped(cast(Any, fleet), attached)


@pytest.mark.parametrize(
    ("attached", "expected"),
    [({LARGE}, True), ({LARGE, SMALL}, True), ({SMALL}, False), (set(), False)],
)
def test_a_large_segment_is_mapped_before_chunks_are_sent(
    attached: set[int], expected: bool
) -> None:
    assert are_mapped(cpu0=attached) is expected


def test_each_device_must_have_it() -> None:
    assert not are_mapped(cpu0={LARGE}, gpu0={SMALL})
