"""Invalid arguments: refused at once, in one sentence with the value and the range."""

from __future__ import annotations

import datetime
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from served import refused

import hetsched

TOY = "toys:Toy"
HUGE = "9" * 100_000
READ_ONLY = np.empty(3)
READ_ONLY.flags.writeable = False
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
    ({"memory_limit": HUGE}, ["memory_limit"]),
    ({"arrays": {5: np.ones(3)}}, ["arrays: 5", "name"]),
    ({"out": {5: np.ones(3)}}, ["out: 5", "name"]),
    ({"out": [1]}, ["out: [1]", "NumPy array", "path of a new file"]),
    ({"out": "z.png"}, ["z.png", "the name must end with .npy"]),
    ({"out": {"Y": None}}, ["out Y: None", "NumPy array"]),
    ({"balance": "best"}, ["balance: 'best'", "auto, functional"]),
    ({"warm_up": 3}, ["warm_up: 3", "one of dfpa"]),
    ({"checkpoint": ""}, ["checkpoint: ''", "the path of a checkpoint"]),
    ({"resume": 5}, ["resume: 5", "absolute path"]),
    ({"every": 3.0}, ["every: there is no checkpoint; give its file, too"]),
    ({"what": object()}, ["parameter what"]),
    ({"what": "\udc80"}, ["parameter what", "UTF-8"]),
    ({"workload": None}, ["workload: ", "should be a workload's name"]),
    ({"workload": b"fft"}, ["workload: ", "should be a workload's name"]),
    ({"workload": "\udc80"}, ["workload: ", "should be a workload's name"]),
]
WRONG_DATA: list[tuple[dict[str, Any], list[str]]] = [
    ({"arrays": [[1], [2, 3]]}, ["is not an array"]),
    ({"arrays": np.array(["text"])}, ["only numeric dtypes"]),
    ({"arrays": np.array([object()])}, ["only numeric dtypes"]),
    ({"arrays": np.zeros(3, "i4,f8")}, ["only numeric dtypes"]),
    ({"arrays": np.ones(3), "out": READ_ONLY}, ["read-only"]),
]


@pytest.mark.parametrize(
    ("said", "words", "code"),
    [*((*case, 2) for case in WRONG), *((*case, 65) for case in WRONG_DATA)],
)
def test_what_cannot_be_sent_is_refused_at_once(
    client: hetsched.Client, said: dict[str, Any], words: list[str], code: int
) -> None:
    before = client.status(limit=1)
    with refused(code) as caught:
        client.submit(**{"workload": TOY, **said})
    assert [word for word in words if word not in str(caught.value)] == []
    assert len(str(caught.value)) < 300
    assert client.status(limit=1) == before


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
def test_a_shape_that_is_none_is_refused(client: hetsched.Client, shape: Any, words: str) -> None:
    with refused(2, words):
        client.empty(shape)


def test_numpys_numbers_shapes_and_dtypes_are_taken(engine: Any) -> None:
    for shape in (np.int64(4), [np.int32(4)], np.array([4])):
        assert engine.empty(shape).shape == (4,)
    words = {"devices": (name for name in ("cpu", "cpu0")), "verify": np.True_}
    limits = {"priority": np.int8(19), "seed": np.uint64(2**63 - 1), "retries": np.int8(3)}
    job = engine.submit(TOY, units=np.int64(4), dtype=np.dtype("f4"), **words, **limits)
    assert job.result(60).dtype == "float32"
    assert (job.report.params["units"], job.report.verified) == (4, True)
    assert engine.submit("fft", batch=(4, 8, 8)).result(60).shape == (4, 8, 8)


@pytest.mark.parametrize("endpoint", [5, b"run", "a\0b"])
def test_an_endpoint_is_a_path(endpoint: Any) -> None:
    with refused(2, "path of a runtime folder"):
        hetsched.Client(endpoint)


@pytest.mark.parametrize("name", ["timeout", "reconnect"])
@pytest.mark.parametrize("seconds", [-1, "x", True, float("nan"), float("inf")])
def test_a_time_is_seconds(tmp_path: Path, name: str, seconds: Any) -> None:
    with refused(2, f"{name}: "):
        hetsched.Client(tmp_path, **{name: seconds})


def test_options_of_the_queue_come_in_every_form(client: hetsched.Client) -> None:
    held = client.submit(TOY, units=1, hold=True)
    soon = datetime.datetime.now(datetime.UTC) + datetime.timedelta(hours=1)
    for after in (held, held.id, str(held.id), f"{held.id}:any", [held, f"{held.id}:fail"]):
        for deadline in (soon, soon.timestamp(), time.time() + 3600):
            job = client.submit(TOY, units=1, after=after, deadline=deadline, timeout="2m")
            state: Any = client.show(job.id)
            assert state.reason == f"after {held.id}"


def test_a_request_that_is_too_large_is_refused_at_once(client: hetsched.Client) -> None:
    with refused(2, "the limit is 10"):
        client.submit(TOY, name="x" * (1 << 20))
    assert client.submit(TOY, units=1).result(60).shape == (1, 4)
