from __future__ import annotations

import math
from typing import Any

import pytest

from hetsched.errors import UsageError
from hetsched.job import Dependency, JobSpec
from hetsched.queue_options import check_queue_options, parse_dependency


def spec(**options: Any) -> JobSpec:
    return JobSpec(workload="fft", params={}, **options)


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"priority": -20, "retries": 100, "timeout": 0.001, "deadline": 2e9},
        {"label": "Nightly batch, größer als gestern", "id": "2026-11-22/run:7@host+1.a_b"},
        {"after": (Dependency(1), Dependency(2, "any"), Dependency(3, "fail"))},
    ],
)
def test_options_within_their_limits_pass(options: dict[str, Any]) -> None:
    check_queue_options(spec(**options))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"priority": 20}, "priority: 20 is out of range (-20 to 19)"),
        ({"priority": -21}, "priority: -21 is out of range (-20 to 19)"),
        ({"retries": 101}, "retries: 101 is out of range (0 to 100)"),
        ({"retries": -1}, "retries: -1 is out of range (0 to 100)"),
        ({"label": "x" * 129}, "label: 129 characters; the maximum is 128"),
        ({"label": "a\x1b[31mb"}, "label: 'a\\x1b[31mb' has characters that can't be printed"),
        ({"id": "-rf"}, "id: '-rf' should be letters, digits and . _ : @ / + -,"),
        ({"id": "é"}, "id: 'é' should be letters"),
        ({"id": "a" * 129}, "id: 129 characters; the maximum is 128"),
        ({"timeout": 0.0}, "timeout: 0 should be positive, at most 1e+09 (seconds)"),
        ({"timeout": math.nan}, "timeout: nan should be a finite number (seconds)"),
        ({"deadline": math.inf}, "deadline: inf should be a finite number (seconds since the"),
        ({"deadline": -1.0}, "deadline: -1 should be positive"),
        ({"after": (Dependency(0),)}, "after: a job: 0 is out of range (1 to 2**63-1)"),
        ({"after": (Dependency(1),) * 101}, "after: 101 jobs; the maximum is 100"),
    ],
)
def test_an_option_out_of_its_limits_is_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(UsageError) as error:
        check_queue_options(spec(**options))

    assert str(error.value).startswith(message)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    ("text", "dependency"),
    [
        ("12", Dependency(12)),
        (" 12:ok ", Dependency(12, "ok")),
        ("7:any", Dependency(7, "any")),
        ("7:fail", Dependency(7, "fail")),
    ],
)
def test_a_dependency_is_a_number_with_a_condition(text: str, dependency: Dependency) -> None:
    assert parse_dependency(text) == dependency


@pytest.mark.parametrize("text", ["", "0", "-1", "x", "12:", "12:done", "1.5", "9" * 30, "١٢"])
def test_other_dependencies_are_refused(text: str) -> None:
    with pytest.raises(UsageError, match="after: "):
        parse_dependency(text)
