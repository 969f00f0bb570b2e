"""Names that clients send: long ones are refused quickly, and kept nowhere."""

from __future__ import annotations

import tracemalloc

import pytest

from hetsched.errors import UsageError
from hetsched.units import closest_name
from hetsched.workload import find, locate


def test_the_closest_name_is_that_of_a_slip() -> None:
    assert closest_name("forwrad", ["forward", "inverse"]) == "forward"
    assert closest_name("x" * 1_000_000, ["forward", "inverse"]) is None


@pytest.mark.parametrize("lookup", [locate, find])
@pytest.mark.parametrize("prefix", ["", "module:"])
def test_long_workload_names_are_not_kept(lookup: type[object], prefix: str) -> None:
    tracemalloc.start()
    for number in range(50):
        with pytest.raises(UsageError, match="at most 300"):
            lookup(f"{prefix}{number}{'x' * 100_000}")
    held, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert held < 300_000
