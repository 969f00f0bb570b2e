"""`hetsched explain`, and the files that `submit` writes, with a daemon on virtual clocks."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path

import daemon_harness
import pytest
from real_daemon import RealDaemon, serving

from hetsched.explain import Explanation

from .conftest import Call
from .test_cli_plan import VIRTUAL, tracks

SUBMIT = ("submit", "fft", "--batch", "64x32x32")


@pytest.fixture
def daemon(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[RealDaemon]:
    folder = tmp_path / "run"
    folder.mkdir(0o700)
    monkeypatch.setenv("HETSCHED_RUNTIME_DIR", str(folder))
    with serving(folder, VIRTUAL) as daemon:
        yield daemon


@pytest.mark.usefixtures("daemon")
def test_a_job_of_the_daemon_is_explained(call: Call) -> None:
    for _ in range(2):
        call(*SUBMIT)
    report = json.loads(call(*SUBMIT, "--json", "--trace", "submit.json").out)

    ended = call("explain", "3", "--trace", "explain.json")

    assert ended.code == 0, ended.err
    assert ended.out.startswith("job 3, done: fft batch=64x32x32")
    for title in ("seconds, measured / predicted:", "where the time went", "why this split:",
                  "why these chunks:", "alternatives (predicted):",
                  "what would help:"):  # fmt: skip
        assert title in ended.out
    record = json.loads(call("explain", "3", "--json").out)
    assert (record["schema"], record["job"]) == ("hetsched.explanation/1", 3)
    assert record["seconds"] == report["seconds"]
    assert Path("submit.json").read_text() == Path("explain.json").read_text()
    assert ("emu0", "measured: copy in") in tracks("explain.json")
    missing = call("explain", "9")
    assert (missing.code, missing.out) == (66, "")
    assert "no job 9; the newest is 3" in missing.error


@pytest.fixture
def harness(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[daemon_harness.Harness]:
    folder = tmp_path / "run"
    folder.mkdir(0o700)
    monkeypatch.setenv("HETSCHED_RUNTIME_DIR", str(folder))
    with daemon_harness.daemon(folder) as harness:
        yield harness


def test_files_that_exist_stay(call: Call, harness: daemon_harness.Harness) -> None:
    Path("t.json").write_text("old")

    refused = [call(*words, "--trace", "t.json") for words in (("explain", "1"), SUBMIT)]

    assert [(one.code, one.out) for one in refused] == [(73, "")] * 2
    assert harness.engine.specs == [], "nothing was submitted"
    assert Path("t.json").read_text() == "old"


@pytest.mark.usefixtures("harness")
def test_who_does_not_wait_gets_no_trace(call: Call) -> None:
    ended = call(*SUBMIT, "--detach", "--trace", "t.json")

    assert (ended.code, ended.out) == (2, "")
    assert "hetsched explain ID" in ended.error


def test_explaining_imports_no_numpy(call: Call, harness: daemon_harness.Harness) -> None:
    import subprocess
    import sys

    harness.engine.explain = lambda number, then: then(  # type: ignore[method-assign]
        Explanation(job=1, state="done", workload="toy", load=1), None
    )
    call("submit", "hetsched_workloads.fft:Fft", "--batch", "4x4x4", "--detach")
    code = (
        "import sys; from hetsched.cli.main import main; main(['explain', '1']);"
        "print(*{name.partition('.')[0] for name in sys.modules})"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, env=os.environ
    )

    assert "job 1, done: toy" in done.stdout
    assert {"numpy", "rich"} & set(done.stdout.split()) == set()
