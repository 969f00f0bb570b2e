import math

import pytest

from hetsched.device import ChunkTimes
from hetsched.models.races import Race, RaceRecord, race_paces


def record(*races: dict[str, tuple[float | None, ...]]) -> RaceRecord:
    return RaceRecord(tuple(Race(i, 10.0, paces) for i, paces in enumerate(races)))


def test_the_ratio_of_two_variants_is_taken_round_by_round() -> None:
    found = record({"a": (1.0, 4.0, 2.0), "b": (1.5, 6.0, 3.0)}).compare("b", "a")

    assert found is not None
    assert found.ratio == pytest.approx(1.5)
    assert found.low < found.mean < found.high
    assert found.races == 1


def test_a_round_without_one_of_them_does_not_count() -> None:
    found = record({"a": (1.0, None, 1.0), "b": (2.0, 9.0, 2.0)}).compare("b", "a")

    assert found is not None
    assert found.ratio == pytest.approx(2.0)
    assert record({"a": (1.0,), "b": (None,)}).compare("b", "a") is None


def test_the_fastest_is_found_among_variants_that_never_met() -> None:
    races = record({"a": (1.2,) * 4, "b": (1.1,) * 4}, {"b": (1.1,) * 4, "c": (1.0,) * 4})

    assert races.fastest(["a", "b", "c"]) == "c"
    assert races.fastest(["a"]) == "a"
    assert races.fastest(["d"]) is None


def test_another_variant_is_the_fastest_only_for_certain() -> None:
    races = record({"a": (1.02, 1.0, 1.01), "b": (1.0, 1.02, 1.0), "c": (0.5, 0.5, 0.5)})

    assert races.fastest(["a", "b"]) == "a"
    assert races.fastest(["b", "a"]) == "b"
    assert races.fastest(["a", "b", "c"]) == "c"


def chunk(seconds: float, kernel: int, *, cold: bool = False) -> tuple[int, ChunkTimes]:
    return 2, ChunkTimes(compute=(0.0, seconds), kernel=kernel, cold=cold)


def test_cold_chunks_do_not_count() -> None:
    chunks = [chunk(8.0, 0, cold=True), chunk(9.0, 1, cold=True), chunk(3.0, 1), chunk(2.0, 0)]

    assert race_paces(chunks, ("a", "b")) == {"a": [None, 1.0], "b": [None, 1.5]}


@pytest.mark.parametrize("seconds", [math.nan, -1.0, 0.0])
def test_what_is_no_time_leaves_a_gap(seconds: float) -> None:
    assert race_paces([chunk(seconds, 0), chunk(4.0, 1)], ("a", "b")) == {"a": [None], "b": [2.0]}
