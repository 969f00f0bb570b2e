from __future__ import annotations

import json
from pathlib import Path

import pytest
from served import Daemon
from virtual_machine import VIRTUAL

from .conftest import Call
from .test_cli_plan import tracks

DEVICES = VIRTUAL
SUBMIT = ("submit", "fft", "--batch", "64x32x32")


@pytest.mark.usefixtures("daemon")
def test_a_job_of_the_daemon_is_explained(call: Call) -> None:
    for _ in range(2):
        call(*SUBMIT)
    report = json.loads(call(*SUBMIT, "--json", "--trace", "submit.json").out)

    number = report["job"]
    ended = call("explain", str(number), "--trace", "explain.json")

    assert ended.code == 0, ended.err
    assert ended.out.startswith(f"job {number}, done: fft batch=64x32x32")
    for title in ("seconds, measured / predicted:", "where the time went", "why this split:",
                  "why these chunks:", "alternatives (predicted):",
                  "what would help:"):  # fmt: skip
        assert title in ended.out
    record = json.loads(call("explain", str(number), "--json").out)
    assert (record["schema"], record["job"]) == ("hetsched.explanation/1", number)
    assert record["seconds"] == report["seconds"]
    assert Path("submit.json").read_text() == Path("explain.json").read_text()
    assert ("emu0", "measured: copy in") in tracks("explain.json")
    missing = call("explain", str(number + 6))
    assert f"no job {number + 6}; the newest is {number}" in missing.error


def test_files_that_exist_stay(call: Call, daemon: Daemon) -> None:
    Path("t.json").write_text("old")
    with daemon.client() as client:
        before = client.status(limit=1)

    refused = [call(*words, "--trace", "t.json") for words in (("explain", "1"), SUBMIT)]

    assert [(one.code, one.out) for one in refused] == [(73, "")] * 2
    with daemon.client() as client:
        assert client.status(limit=1) == before, "nothing was submitted"
    assert Path("t.json").read_text() == "old"


@pytest.mark.usefixtures("daemon")
def test_who_does_not_wait_gets_no_trace(call: Call) -> None:
    ended = call(*SUBMIT, "--detach", "--trace", "t.json")

    assert (ended.code, ended.out) == (2, "")
    assert "hetsched explain ID" in ended.error
