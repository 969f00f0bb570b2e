"""The verbs of the queue, against a daemon with one device whose first job waits for the test."""

from __future__ import annotations

import json
import signal
import subprocess
import threading
from collections.abc import Iterator
from concurrent.futures import wait
from pathlib import Path
from typing import Any

import pytest
import real_daemon
from gated_workload import Gate

from hetsched.client.control import Control
from hetsched.errors import CantCreate
from hetsched.job import FileOut, JobSpec, Running

from .conftest import COMMAND, Call

MACHINE = """
[[device]]
kind = "emulated"
name = "core0"
clock = "virtual"
compute = { unit = "20us" }
"""
TESTS = Path(__file__).parents[1]


@pytest.fixture(scope="module")
def daemon(tmp_path_factory: pytest.TempPathFactory) -> Iterator[real_daemon.RealDaemon]:
    folder = tmp_path_factory.mktemp("daemon")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", str(TESTS))
        with real_daemon.serving(folder, MACHINE) as serving:
            yield serving


class Queue:
    """Job `first` runs, until `close`; others wait behind it."""

    def __init__(self, control: Control, gate: Gate) -> None:
        self.control = control
        self.gate = gate
        self.first = self.submit(gate=str(gate.path))
        is_running = threading.Event()
        control.follow(self.first, lambda state: isinstance(state, Running) and is_running.set())
        assert is_running.wait(60)

    def submit(self, spec: dict[str, Any] | None = None, **params: Any) -> int:
        job = JobSpec(workload="gated_workload:Gated", params=params, **spec or {})
        return self.control.start(job).id

    def cancel(self, job: int) -> None:
        """Cancel a job, and wait until it has ended."""
        self.control.cancel(job)
        wait([self.control.job(job)], 60)

    def close(self) -> None:
        jobs = self.control.cancel_all()
        self.gate.close()
        wait([self.control.job(job) for job in jobs], 60)


@pytest.fixture
def queue(
    daemon: real_daemon.RealDaemon, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Queue]:
    monkeypatch.setenv("HETSCHED_RUNTIME_DIR", str(daemon.folder))
    with Control(daemon.folder) as control:
        queue = Queue(control, Gate(tmp_path / "gate"))
        yield queue
        queue.close()


def rows(call: Call, *words: str) -> dict[int, dict[str, Any]]:
    record = json.loads(call("status", "--json", *words).out)
    return {job["job"]: job for job in record["jobs"]}


def test_held_jobs_say_so_until_they_are_released(call: Call, queue: Queue) -> None:
    a, b = queue.submit(), queue.submit()

    held = call("hold", str(a), str(b), str(a))
    assert held.out.splitlines() == [f"held {a}", f"held {b}"]
    assert set(rows(call, "--state", "held")) == {a, b}
    assert rows(call)[a]["reason"] == "held"

    assert call("release", str(a)).out == f"released {a}\n"
    assert call("release", str(a)).out == f"{a} isn't held\n"
    assert rows(call)[a]["reason"] == "resources"


def test_every_job_of_several_is_changed_even_if_one_cannot_be(call: Call, queue: Queue) -> None:
    job = queue.submit()

    ended = call("hold", str(queue.first), "999999", str(job))

    assert ended.code == 2
    assert ended.out == f"held {job}\n"
    lines = ended.err.splitlines()
    assert lines[0].startswith(f"error: job {queue.first} is running")
    assert lines[1].startswith("error: no job 999999")


def test_priorities_may_be_negative_and_of_several_jobs(call: Call, queue: Queue) -> None:
    a, b = queue.submit(), queue.submit()

    assert call("prioritize", str(a), "-5").out == f"priority of {a}: -5\n"
    call("prioritize", str(a), str(b), "7")

    assert [rows(call)[job]["priority"] for job in (a, b)] == [7, 7]
    assert call("prioritize", str(a), "20").code == 2


def test_status_shows_reasons_labels_and_priorities(call: Call, queue: Queue) -> None:
    a = queue.submit({"label": "nightly", "priority": 3})
    b = queue.submit({"after": ()})
    c = call("submit", "fft", "--batch", "1x8x8", "--after", str(b), "--parsable").out.strip()

    table = call("status", "-t", "queued", "--sort", "-priority").out.splitlines()

    assert table[0].split() == [
        "job", "workload", "parameters", "state", "priority", "label", "submitted", "reason",
        "progress",
    ]  # fmt: skip
    assert table[1].split()[0] == str(a)
    assert "nightly" in table[1] and table[1].endswith("resources  1 ahead")
    assert table[-1].endswith(f"after {b}")
    assert rows(call)[int(c)]["reason"] == f"after {b}"
    assert list(rows(call, "-n", "2")) == [b, int(c)]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("status", "--sort", "size"), "--sort 'size': choose from: job, priority"),
        (("status", "-t", "ended"), "--state 'ended': choose from: queued, held"),
        (("status", "--interval", "0s"), "--interval 0s: should be from 100ms to 1d"),
        (("clean", "-s", "queued"), "--state queued: only jobs that have ended can be forgotten"),
        (("cancel",), "give the numbers of jobs, or --all"),
        (("cancel", "1", "--all"), "give the numbers of jobs, or --all"),
    ],
)
def test_wrong_arguments_are_refused_in_one_line(
    call: Call, words: tuple[str, ...], message: str
) -> None:
    ended = call(*words)

    assert ended.code == 2
    assert message in ended.error


def test_all_jobs_are_cancelled_at_once(call: Call, queue: Queue) -> None:
    a, b = queue.submit(), queue.submit()

    ended = call("cancel", "--all")

    assert ended.out.splitlines() == [f"cancelled {job}" for job in (queue.first, a, b)]
    wait([queue.control.job(job) for job in (a, b)], 60)
    assert rows(call)[a]["state"] == "cancelled"
    assert call("cancel", str(b)).out == f"job {b} has already ended: cancelled\n"


def test_a_job_that_is_submitted_on_hold_waits(call: Call, queue: Queue) -> None:
    ended = call("submit", "fft", "--batch", "1x8x8", "--hold", "--no-wait", "--label", "later")

    job = int(ended.out.split()[1])
    assert rows(call)[job]["reason"] == "held"
    assert rows(call)[job]["label"] == "later"


def test_an_ended_job_runs_again_under_a_new_number(call: Call, queue: Queue) -> None:
    job = queue.submit({"label": "again"})
    call("cancel", str(job))

    ended = call("retry", str(job), str(queue.first))

    assert ended.out.split() == ["submitted", str(job + 1) + ":", "job", str(job), "again"]
    assert ended.code == 2
    assert "hasn't ended" in ended.error
    assert rows(call)[job + 1]["label"] == "again"


def test_retry_prints_only_the_numbers_for_scripts(call: Call, queue: Queue) -> None:
    job = queue.submit({"label": "again"})
    call("cancel", str(job))

    assert call("retry", str(job), "--parsable").out == f"{job + 1}\n"


def test_retry_replaces_an_output_file_only_with_force(
    call: Call, queue: Queue, tmp_path: Path
) -> None:
    output = FileOut(str(tmp_path / "y.npy"))
    job = queue.submit({"outputs": {"": output}})
    call("cancel", str(job))
    (tmp_path / "y.npy").touch()

    assert call("retry", str(job)).code == CantCreate.code
    assert call("retry", str(job), "--force").code == 0


def test_history_lists_ended_jobs_and_clean_forgets_them(call: Call, queue: Queue) -> None:
    job = queue.submit({"label": "old"})
    queue.cancel(job)

    record = json.loads(call("history", "-s", "cancelled", "-S", "1h", "--json").out)
    assert record["schema"] == "hetsched.history/1"
    assert record["jobs"][-1]["job"] == job
    table = call("history", "-n", "5").out.splitlines()
    assert "old" in table[-1] and "was cancelled" in table[-1]

    assert call("clean", "--older", "1d").out == "forgot 0 jobs\n"
    assert job in json.loads(call("clean", "--json").out)["jobs"]
    assert job not in rows(call)


def test_a_drained_daemon_says_what_it_waits_for(call: Call, queue: Queue) -> None:
    queue.submit({"hold": True})

    assert call("drain").out == "draining: no new jobs; 2 jobs to finish\n"
    refused = call("submit", "fft", "--batch", "1x8x8")
    assert (refused.code, "hetsched drain --undo" in refused.error) == (75, True)
    queue.gate.open()
    assert call("drain", "--wait").out == "draining: no new jobs; 1 job to finish\n"
    assert call("drain", "--undo").out == "accepting jobs again\n"
    assert call("drain", "--undo", "--now").code == 2


def test_follow_prints_each_event_until_the_jobs_have_ended(call: Call, queue: Queue) -> None:
    job = queue.submit({"hold": True})
    queue.cancel(job)

    line = json.loads(call("follow", str(job), "--json").out)
    ended = call("follow", str(job), "999999")

    assert (line["schema"], line["sequence"]) == ("hetsched.event/1", 1)
    assert (line["job"], line["state"]) == (job, "cancelled")
    assert (ended.code, ended.error.startswith("no job 999999")) == (66, True)


def test_status_is_repeated_until_ctrl_c(queue: Queue) -> None:
    words = ("status", "--watch", "--interval", "100ms", "--json")
    with subprocess.Popen([*COMMAND, *words], stdout=subprocess.PIPE) as watch:
        assert watch.stdout is not None
        records = [json.loads(watch.stdout.readline()) for _ in range(2)]
        watch.send_signal(signal.SIGINT)
        watch.wait(60)  # while it can still write

    assert watch.returncode == 130
    assert all(queue.first in [job["job"] for job in record["jobs"]] for record in records)


def test_events_come_through_a_pipe_as_they_happen(queue: Queue) -> None:
    job = queue.submit({"hold": True})
    with subprocess.Popen([*COMMAND, "follow", str(job)], stdout=subprocess.PIPE) as follow:
        assert follow.stdout is not None
        first = follow.stdout.readline().decode().split()
        queue.control.release(job)
        second = follow.stdout.readline().decode().split()
        queue.control.cancel(job)
        last = follow.stdout.read().decode().split()

    assert follow.returncode == 0
    assert first[1:4] == ["queued", str(job), "held,"]
    assert second[1:4] == ["queued", str(job), "resources,"]
    assert last[1:3] == ["cancelled", str(job)]
