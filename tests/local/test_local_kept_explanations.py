"""The estimated size of what explains an ended job, by which old ones are forgotten."""

from __future__ import annotations

import gc
import sys
from types import ModuleType
from typing import Any

import numpy as np

import hetsched
from hetsched.engine.explanations import JobSnapshot


def size(subject: Any, seen: set[int]) -> int:
    """Return the bytes of everything that `subject` refers to and that isn't `seen` yet."""
    todo, total = [subject], 0
    while todo:
        each = todo.pop()
        if id(each) not in seen and not isinstance(each, type | ModuleType):
            seen.add(id(each))
            total += sys.getsizeof(each)
            todo += gc.get_referents(each)
    return total


def snapshots() -> list[JobSnapshot]:
    return [each for each in gc.get_objects() if isinstance(each, JobSnapshot)]


def test_what_explains_an_ended_job_is_counted_at_its_size() -> None:
    others = snapshots()  # of other tests
    known = set(map(id, others))
    with hetsched.Local("cpu-only", learn=False) as local:
        x = np.ones((16, 64, 64), dtype="complex64")
        for planes in range(1, 13):
            for _ in range(2):
                local.submit("fft", x[:planes]).result()
        kept = [each for each in snapshots() if id(each) not in known]
        kept.sort(key=lambda each: each.number)
        assert len(kept) == 24
        seen: set[int] = set()
        size(kept[0], seen)  # what all have in common
        real = sum(size(each, seen) for each in kept[1:])
        plans = [each.plan for each in kept]
        estimated = sum(each.nbytes(plans[i]) for i, each in enumerate(kept[1:]))
        assert real / 3 < estimated < 3 * real
