"""Contestants in rounds, saved and compared; tests don't measure anything."""

from __future__ import annotations

from pathlib import Path

import pytest

pyperf = pytest.importorskip("pyperf")

from benchmarks import contest, saved  # noqa: E402
from benchmarks.contest import Measured  # noqa: E402


def suite(**seconds: list[float]) -> saved.Saved:
    """Benchmarks of case c; each name with the seconds of the rounds."""

    def contestant(values: list[float]) -> contest.Contestant:
        rounds = iter(values)
        return lambda: Measured({name: next(rounds)})

    found = []
    for name, values in seconds.items():
        found += contest.race("c", {name: contestant(values)}, len(values))
    return {benchmark.get_name(): benchmark for benchmark in found}


def test_every_contestant_is_in_every_round_however_slow_it_was_in_one() -> None:
    calls = dict.fromkeys(("hetsched", "disturbed", "missing"), 0)

    def run(name: str) -> Measured | None:
        calls[name] += 1
        slow = name == "disturbed" and calls[name] == 1
        return None if name == "missing" else Measured({name: 9.0 if slow else 1.0})

    found = contest.race("c", {name: lambda name=name: run(name) for name in calls}, 5)

    assert calls == {"hetsched": 5, "disturbed": 5, "missing": 1}
    assert {one.get_name(): one.median() for one in found} == {"c: hetsched": 1, "c: disturbed": 1}


def test_a_ratio_is_that_of_equal_rounds() -> None:
    assert contest.ratio([2.0, 2.0, 3.0], [1.0, 2.0, 1.0]) == "2.00 (1.50 to 2.50)"


def test_what_was_saved_is_kept_beside_other_cases(tmp_path: Path) -> None:
    path = tmp_path / "processor" / "jobs.json"
    saved.save(path, suite(hetsched=[1.0, 2.0], ducc0=[1.0, 1.0]).values())
    saved.save(path, suite(ducc0=[3.0]).values())

    found, facts = saved.of_case(saved.load(path), "c")
    assert found == {"hetsched": (1.0, 2.0), "ducc0": (3.0,)}
    assert "family" in facts["processor"] or facts["processor"]


@pytest.mark.parametrize(
    ("ours", "theirs", "is_slower"), [(1.5, 1.5, False), (1.0, 0.5, False), (1.5, 1.0, True)]
)
def test_slower_means_in_time_and_against_the_peer(
    ours: float, theirs: float, is_slower: bool
) -> None:
    before, now = suite(hetsched=[1.0], ducc0=[1.0]), suite(hetsched=[ours], ducc0=[theirs])
    assert saved.compared("c", now, before).endswith("SLOWER") == is_slower
