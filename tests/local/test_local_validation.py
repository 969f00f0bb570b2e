"""Invalid arguments are refused at once, as the client does."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

import hetsched
from hetsched.config import parse
from hetsched.errors import InputMissing, UsageError


@pytest.fixture(scope="module")
def local() -> Iterator[hetsched.Local]:
    config = parse("[[device]]\nkind = 'cpu'\ncount = 1\n", "test")
    with hetsched.Local(config, learn=False) as local:
        yield local


@pytest.mark.parametrize(
    "arguments",
    [
        {"priority": "a"},
        {"seed": -1},
        {"verify": "x"},
        {"force": "x"},
        {"devices": 5},
        {"memory_limit": 0},
        {"out": [1]},
    ],
)
def test_what_has_a_wrong_type_or_range_is_named(
    local: hetsched.Local, arguments: dict[str, Any]
) -> None:
    with pytest.raises(UsageError, match=next(iter(arguments))):
        local.submit("fft", batch="1x8x8", **arguments)


def test_a_shape_is_refused_by_its_axis(local: hetsched.Local) -> None:
    with pytest.raises(UsageError, match="axis 0: -1"):
        local.empty((-1, 2))


@pytest.mark.parametrize("name", ["x" * 100_000, "x" * 100_000 + ":y"])
def test_a_long_name_is_cut_in_messages(local: hetsched.Local, name: str) -> None:
    with pytest.raises(UsageError, match="workload 'xxx") as caught:
        local.submit(name)
    assert len(str(caught.value)) < 1000


def test_a_configuration_is_a_name_or_a_config() -> None:
    with pytest.raises(UsageError, match="config: 5 should be"):
        hetsched.Local(config=5)  # type: ignore[arg-type]
    with pytest.raises(InputMissing, match="no config 'xxx") as caught:
        hetsched.Local(config="x" * 100_000)
    assert len(str(caught.value)) < 1000
