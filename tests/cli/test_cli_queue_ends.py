"""How jobs of a real daemon end: after others, at a limit, after retries; and how it drains."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import real_daemon
from gated_workload import Gate

from hetsched.client.control import Control
from hetsched.errors import JobFailed
from hetsched.job import Dependency, JobSpec, words

from .conftest import Call

MACHINE = """
[[device]]
kind = "emulated"
name = "core0"
clock = "virtual"
compute = { unit = "20us" }
"""
TESTS = Path(__file__).parents[1]


@pytest.fixture
def daemon(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[real_daemon.RealDaemon]:
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(TESTS)]))
    folder = tmp_path / "daemon"
    folder.mkdir()
    monkeypatch.setenv("HETSCHED_RUNTIME_DIR", str(folder))
    with real_daemon.serving(folder, MACHINE) as serving:
        yield serving


def submit(control: Control, options: dict[str, Any] | None = None, **params: Any) -> Any:
    return control.start(JobSpec(workload="gated_workload:Gated", params=params, **options or {}))


def test_a_chain_ends_with_the_reason_of_each_link(
    daemon: real_daemon.RealDaemon, tmp_path: Path, call: Call
) -> None:
    gate = Gate(tmp_path / "gate")
    with Control(daemon.folder) as control:
        first = submit(control, gate=str(gate.path))
        second = submit(control, {"after": (Dependency(first.id),), "label": "second"})
        third = submit(control, {"after": (Dependency(second.id, "fail"),)})
        shown = call("show", str(second.id)).out
        control.cancel(first.id)
        gate.close()

        third.result(60)
        with pytest.raises(JobFailed, match=f"only if job {first.id} succeeds"):
            second.result(60)
    assert "label: second" in shown
    assert f"after: {first.id}:ok" in shown
    assert f"after {first.id}, 1 ahead" in shown
    (row,) = json.loads(call("status", str(third.id), "--json").out)["jobs"]
    assert (row["job"], row["after"]) == (third.id, [{"job": second.id, "condition": "fail"}])
    assert call("status", "77").code == 66


def test_a_job_is_retried_and_says_so(
    daemon: real_daemon.RealDaemon, tmp_path: Path, call: Call
) -> None:
    failures = tmp_path / "failures"
    failures.write_text("x")
    with Control(daemon.folder) as control:
        job = submit(control, {"retries": 1}, failures=str(failures))
        job.result(60)

    record = json.loads(call("show", str(job.id), "--json").out)
    assert record["state"] == "done"
    assert any(note.startswith("attempt 1 failed: ") for note in record["notes"])


def test_a_drained_daemon_ends_when_its_jobs_have(
    daemon: real_daemon.RealDaemon, tmp_path: Path, call: Call
) -> None:
    gate = Gate(tmp_path / "gate")
    with Control(daemon.folder) as control:
        first, second = submit(control, gate=str(gate.path)), submit(control)
        ended = call("drain", "--stop")
        gate.close()
        second.result(60)
        assert first.done()

    assert ended.out == "draining: no new jobs; 2 jobs to finish, then the daemon ends\n"
    assert daemon.process.wait(60) == 0


def test_a_daemon_that_is_drained_now_ends_at_once(
    daemon: real_daemon.RealDaemon, call: Call
) -> None:
    assert call("drain", "--now").out == "stopping: running jobs end after their current chunks\n"

    assert daemon.process.wait(60) == 0


def test_a_chain_continues_in_the_next_daemon(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, call: Call
) -> None:
    monkeypatch.setenv("PYTHONPATH", str(TESTS))
    monkeypatch.setenv("HETSCHED_RUNTIME_DIR", str(tmp_path))
    gate = Gate(tmp_path / "gate")
    with real_daemon.serving(tmp_path, MACHINE) as daemon:
        with Control(tmp_path, reconnect=0) as control:
            first = submit(control, gate=str(gate.path))
            held = submit(control, {"hold": True, "label": "kept"})
            last = submit(control, {"after": (Dependency(first.id), Dependency(held.id))})
            call("prioritize", str(held.id), "7")
        daemon.process.kill()
        daemon.process.wait()
    (tmp_path / "notify.sock").unlink()

    with real_daemon.serving(tmp_path, MACHINE), Control(tmp_path) as control:
        (line,) = control.status(jobs=[held.id])
        waiting = control.job(last.id)
        gate.close()
        control.release(held.id)
        waiting.exception(60)

        assert (line.label, line.priority) == ("kept", 7)
        assert [words(control.show(job.id)) for job in (first, held, last)] == [("done",)] * 3
        assert [job.job for job in control.history(["done"])] == [first.id, held.id, last.id]
