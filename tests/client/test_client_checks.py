"""Invalid arguments: refused at once, in one sentence with the value and the range."""

from __future__ import annotations

import datetime
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import daemon_harness
import numpy as np
import pytest
from daemon_harness import Harness

from hetsched.client.client import Client
from hetsched.errors import DataError, UsageError
from hetsched.job import Dependency


@pytest.fixture(scope="module")
def harness(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Harness]:
    with daemon_harness.daemon(tmp_path_factory.mktemp("d")) as harness:
        yield harness


@pytest.fixture(scope="module")
def client(harness: Harness) -> Iterator[Client]:
    with Client(harness.folder, timeout=60) as client:
        yield client


WRONG: list[tuple[dict[str, Any], list[str]]] = [
    ({"priority": "a"}, ["priority: 'a'", "from -20 to 19"]),
    ({"priority": 1.5}, ["priority: 1.5", "from -20 to 19"]),
    ({"priority": 20}, ["priority: 20", "from -20 to 19"]),
    ({"priority": -21}, ["priority: -21", "from -20 to 19"]),
    ({"priority": True}, ["priority: True", "integer"]),
    ({"retries": 101}, ["retries: 101", "from 0 to 100"]),
    ({"label": 5}, ["label: 5", "text"]),
    ({"label": "a\nb"}, ["label: 'a\\nb'", "can be printed"]),
    ({"id": "a b"}, ["id: 'a b'", "letters, digits"]),
    ({"id": "\udc80"}, ["id", "letters"]),
    ({"after": 0}, ["after: '0'", "a job number"]),
    ({"after": 1.5}, ["after: 1.5", "a sequence"]),
    ({"after": ["1:maybe"]}, ["after: '1:maybe'", "ok, any, fail"]),
    ({"timeout": 0}, ["timeout: 0", "above 0"]),
    ({"timeout": "soon"}, ["timeout: 'soon'", "10s"]),
    ({"timeout": float("nan")}, ["timeout: nan", "above 0"]),
    ({"deadline": 1.0}, ["deadline: 1.0", "in the future"]),
    ({"hold": 1}, ["hold: 1", "True or False"]),
    ({"seed": -1}, ["seed: -1", "from 0 to 2**63-1"]),
    ({"seed": "a"}, ["seed: 'a'", "from 0 to 2**63-1"]),
    ({"seed": 2**63}, ["seed: a number of 64 bits", "2**63-1"]),
    ({"seed": 10**9999}, ["seed", "bits"]),
    ({"seed": None}, ["seed: None"]),
    ({"verify": "x"}, ["verify: 'x'", "True or False"]),
    ({"verify": np.array([True, False])}, ["verify", "True or False"]),
    ({"force": "x"}, ["force: 'x'", "True or False"]),
    ({"devices": 5}, ["devices: ", "5", "cpu,gpu0"]),
    ({"devices": [5]}, ["devices: ", "5", "cpu,gpu0"]),
    ({"devices": "\udc80"}, ["devices", "cpu,gpu0"]),
    ({"memory_limit": 1.5}, ["memory_limit", "1.5", "from 1"]),
    ({"memory_limit": -1}, ["memory_limit", "-1", "from 1"]),
    ({"memory_limit": 0}, ["memory_limit", "0", "from 1"]),
    ({"memory_limit": "0"}, ["memory_limit", "0", "from 1"]),
    ({"memory_limit": "much"}, ["memory_limit: 'much'", "64MiB"]),
    ({"memory_limit": "9" * 100_000}, ["memory_limit"]),
    ({"arrays": {5: np.ones(3)}}, ["arrays: 5", "name"]),
    ({"out": {5: np.ones(3)}}, ["out: 5", "name"]),
    ({"out": [1]}, ["out: [1]", "NumPy array", ".npy"]),
    ({"out": {"Y": None}}, ["out Y: None", "NumPy array"]),
    ({"balance": "best"}, ["balance: 'best'", "auto, functional"]),
    ({"warm_up": 3}, ["warm_up: 3", "one of dfpa"]),
    ({"checkpoint": ""}, ["checkpoint: ''", "the path of a checkpoint"]),
    ({"resume": 5}, ["resume: 5", "absolute path"]),
    ({"every": 3.0}, ["every: there is no checkpoint; give its file, too"]),
    ({"what": object()}, ["parameter what"]),
    ({"what": "\udc80"}, ["parameter what", "UTF-8"]),
]


@pytest.mark.parametrize(("said", "words"), WRONG)
def test_what_cannot_be_sent_is_refused_at_once(
    harness: Harness, client: Client, said: dict[str, Any], words: list[str]
) -> None:
    before = len(harness.engine.specs)
    with pytest.raises(UsageError) as caught:
        client.submit("wait", **said)
    for word in words:
        assert word in str(caught.value)
    assert "\n" not in str(caught.value)
    assert len(str(caught.value)) < 300
    assert len(harness.engine.specs) == before


@pytest.mark.parametrize("workload", [None, 5, b"fft", "\udc80"])
def test_a_workload_is_text(client: Client, workload: Any) -> None:
    with pytest.raises(UsageError, match=r"workload: .* should be a workload's name"):
        client.submit(workload)


def test_nothing_is_copied_before_all_has_been_checked(harness: Harness, client: Client) -> None:
    before = harness.arena.used
    with pytest.raises(UsageError, match="seed"):
        client.submit("wait", np.ones(3), seed=-1)
    assert harness.arena.used == before


def test_the_limits_themselves_and_numpys_numbers_are_taken(
    harness: Harness, client: Client
) -> None:
    for priority, seed in ((-20, 0), (np.int8(19), np.uint64(2**63 - 1))):
        client.submit(
            "wait",
            devices=(name for name in ("cpu", "gpu0")),  # type: ignore[arg-type]
            memory_limit=1,
            verify=np.True_,  # type: ignore[arg-type]
            seed=seed,  # type: ignore[arg-type]
            priority=priority,  # type: ignore[arg-type]
        ).cancel()
        spec = harness.engine.specs[-1]
        assert (spec.priority, spec.seed) == (priority, seed)
        assert (spec.devices, spec.memory_limit) == (("cpu", "gpu0"), 1)
        assert spec.verify is True


def test_rows_of_different_lengths_are_no_array(client: Client) -> None:
    with pytest.raises(DataError, match="is not an array"):
        client.submit("wait", [[1], [2, 3]])  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("shape", "words"),
    [
        ("a", "shape: 'a' should be an integer"),
        (None, "shape: None should be an integer"),
        (1.5, "shape: 1.5 should be an integer"),
        (-1, "shape: -1 should be an integer from 0"),
        ((-1, 2), "shape: (-1, 2) should be"),
        ([[1], [2, 3]], "shape: [[1], [2, 3]] should be"),
        ((3, 1e9), "shape: (3, 1000000000.0) should be"),
        ((1,) * 70, "at most 64 of them"),
    ],
)
def test_a_shape_that_is_none_is_refused(client: Client, shape: Any, words: str) -> None:
    with pytest.raises(UsageError) as caught:
        client.empty(shape)
    assert words in str(caught.value)


def test_a_shape_may_be_numpys(client: Client) -> None:
    for shape in (np.int64(4), [np.int32(4)], np.array([4])):
        assert client.empty(shape).shape == (4,)  # type: ignore[arg-type]


@pytest.mark.parametrize("endpoint", [5, b"run", "a\0b"])
def test_an_endpoint_is_a_path(endpoint: Any) -> None:
    with pytest.raises(UsageError, match=r"endpoint: .* path of a runtime folder"):
        Client(endpoint)


@pytest.mark.parametrize("name", ["timeout", "reconnect"])
@pytest.mark.parametrize("seconds", [-1, "x", True, float("nan"), float("inf")])
def test_a_time_is_seconds(tmp_path: Path, name: str, seconds: Any) -> None:
    with pytest.raises(UsageError, match=f"{name}: .* seconds"):
        Client(tmp_path, **{name: seconds})


def test_options_of_the_queue_come_in_every_form(harness: Harness, client: Client) -> None:
    earlier = client.submit("double")
    soon = time.time() + 60

    client.submit("wait", after=earlier).cancel()
    client.submit("wait", after="1:any", timeout="2m", deadline=soon, retries=np.int8(3)).cancel()
    client.submit(
        "wait", after=[earlier.id, earlier, Dependency(1, "any")], timeout=2, hold=True
    ).cancel()

    first, second, third = harness.engine.specs[-3:]
    assert first.after == (Dependency(earlier.id),)
    assert (second.after, second.timeout, second.retries) == ((Dependency(1, "any"),), 120.0, 3)
    assert second.deadline == soon
    assert third.after == (Dependency(earlier.id),) * 2 + (Dependency(1, "any"),)
    assert (third.timeout, third.hold) == (2.0, True)


def test_a_deadline_may_be_a_datetime(harness: Harness, client: Client) -> None:
    deadline = datetime.datetime.now(datetime.UTC) + datetime.timedelta(hours=1)

    client.submit("wait", deadline=deadline).cancel()

    assert harness.engine.specs[-1].deadline == deadline.timestamp()
