from __future__ import annotations

import itertools
from collections import defaultdict

import pytest

from hetsched.explain.trace import trace
from tests.explain.iterations.story import explanation


@pytest.mark.parametrize("iterations", [60, 5000])
def test_phases_of_a_device_follow_each_other(iterations: int) -> None:
    explained = explanation(iterations)
    history = explained.iterations
    assert history is not None
    events = trace(explained)["traceEvents"]
    spans = defaultdict(list)
    for event in events:
        if event["ph"] == "X":
            spans[event["pid"]].append((event["ts"], event["ts"] + event["dur"]))

    assert set(spans) == {1, 2, 3}
    for device in spans.values():
        for (_, end), (start, _) in itertools.pairwise(device):
            assert end <= start + 0.01
        assert device[-1][1] == pytest.approx(history.seconds * 1e6)


def test_moves_and_checkpoints_are_marks() -> None:
    events = trace(explanation())["traceEvents"]

    marks = [(e["ts"], e["name"]) for e in events if e["ph"] == "i"]
    assert len(marks) == 4
    assert marks[0] == (pytest.approx(4 * 40200), marks[0][1])
    assert marks[0][1].startswith("600 rows moved: imbalance")
    assert [name for _, name in marks[2:]] == ["checkpoint", "checkpoint"]
