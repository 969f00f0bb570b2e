"""Kills and stops of the daemon at random moments, under clients that reconnect.

Clients hold, release, move and cancel jobs as well: each of them ends once, as they asked.
"""

from __future__ import annotations

import concurrent.futures
import contextlib
import functools
import random
import signal
import socket
import threading
import time
from collections import Counter
from concurrent.futures import CancelledError
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from served import CORES, Daemon, serving

import hetsched
from hetsched.errors import HetschedError, InputMissing, JobFailed, TryAgain, WaitTimeout

pytestmark = pytest.mark.stress
CONFIG = CORES + '[journal]\nkeep_jobs = 10000000\nlimit = "20GiB"\n'
"""The journal remembers every job until it has been compared with what the clients know."""
CLIENTS = 4
LONGEST_LIFE = 5.0
"""Seconds from the start of a daemon to its end, at most: device processes take one of them."""
ENDS = ("SIGKILL", "SIGKILL", "SIGTERM", "SIGTERM twice", "SIGQUIT")
RESULT_SECONDS = 120.0
SHAPE = (4, 64, 64)
KINDS = ("array", "generated", "file", "failing")
GIVEN_UP = "was running each of the 3 times that the daemon ended"


@dataclass
class Submission:
    """`number` is 0 if it was never acknowledged; `end`: what the client got."""

    ident: str
    kind: str
    number: int = 0
    may_be_cancelled: bool = False
    is_durable: bool = False
    end: str = ""
    is_wrong: bool = False
    kills: int = 0


@dataclass
class Story:
    """What all clients saw; `kills`: of daemons so far."""

    folder: Path
    submissions: list[Submission] = field(default_factory=list)
    is_over: threading.Event = field(default_factory=threading.Event)
    kills: int = 0

    def run_client(self, client: hetsched.Client, index: int) -> None:
        chance = np.random.default_rng(index)
        with client:
            for count in range(1_000_000):
                if self.is_over.is_set():
                    return
                submission = Submission(f"client-{index}-{count}", KINDS[count % len(KINDS)])
                self.submissions.append(submission)
                before = self.kills
                try:
                    self.run_job(client, submission, chance)
                    submission.end = "done"
                except CancelledError:
                    submission.end = "cancelled"
                except InputMissing:
                    submission.end = "result lost"
                except HetschedError as error:
                    submission.end = f"{type(error).__name__}: {error}"
                submission.kills = self.kills - before

    def run_job(self, client: hetsched.Client, mine: Submission, chance: Any) -> None:
        """Submit an array (volatile) or what is durable; check the result."""
        kind = mine.kind
        x = chance.random(SHAPE).astype("complex64")
        source, target = self.folder / f"{mine.ident}.npy", self.folder / f"{mine.ident}-out.npy"
        if kind == "array":
            job = client.submit("fft", x, id=mine.ident)
        elif kind == "generated":
            job = client.submit("fft", batch=SHAPE, verify=True, id=mine.ident)
        elif kind == "failing":
            job = client.submit("toys:Toy", units=2, fault="error", id=mine.ident)
        else:
            np.save(source, x)
            job = client.submit("fft", source, out=target, id=mine.ident)
        try:
            y = self.result(client, job, mine, chance)
        finally:  # after a restart it may have another number
            mine.number, mine.is_durable = job.id, job.durability == "durable"
        y = np.load(target) if kind == "file" else y
        expected = y if kind == "generated" else np.fft.fft2(x)
        mine.is_wrong = y.shape != SHAPE or not np.allclose(y, expected, atol=1e-2)

    def result(self, client: Any, job: hetsched.Job, mine: Submission, chance: Any) -> Any:
        """Wait while daemons end, on a busy machine before they compute, and a while longer."""
        requests = [client.hold, functools.partial(client.prioritize, priority=3), client.cancel]
        for request in (
            chance.choice(requests, chance.integers(3)) if chance.random() < 0.25 else ()
        ):
            mine.may_be_cancelled |= request == client.cancel
            with contextlib.suppress(HetschedError):  # it may have ended
                request(job.id)
        while not self.is_over.is_set():
            with contextlib.suppress(HetschedError):  # it may not be on hold
                client.release(job.id)
            with contextlib.suppress(WaitTimeout):
                return job.result(1.0)
        return job.result(RESULT_SECONDS)


def end(daemon: Daemon, how: str) -> bool:
    """End the daemon, which leaves no process behind; return whether it was a kill."""
    if how == "SIGTERM twice":
        daemon.process.send_signal(signal.SIGTERM)
    name = how.partition(" ")[0]
    status = daemon.stop(signal.Signals[name])
    assert status == {"SIGTERM": 0}.get(name, -signal.Signals[name]), (how, status)
    return name != "SIGTERM"


def test_daemon_kills_lose_and_double_no_job(stress: Any, tmp_path: Path) -> None:
    chance, story = random.Random(0), Story(tmp_path)
    pool = concurrent.futures.ThreadPoolExecutor(CLIENTS)
    with serving(CONFIG) as daemon, pool:
        clients = [daemon.client(reconnect=60.0) for _ in range(CLIENTS)]
        running = [pool.submit(story.run_client, *each[::-1]) for each in enumerate(clients)]
        try:
            for _ in range(stress.scaled(20)):
                time.sleep(chance.uniform(0.0, LONGEST_LIFE))
                story.kills += end(daemon, chance.choice(ENDS))
                daemon.start()
        finally:
            story.is_over.set()
        for each in running:
            each.result()
        rows = daemon.call("history", "-n", "1000000", "--json").json["jobs"]
    journal = {row["id"]: (row["job"], row["state"]) for row in rows if row["id"]}
    check(story.submissions, journal, len(rows))
    ends = Counter(each.end.partition(":")[0] for each in story.submissions)
    stress.record_all({"ends of the daemon": stress.scaled(20), "kills": story.kills, **ends})


def check(submissions: list[Submission], journal: dict[str, tuple[int, str]], rows: int) -> None:
    """Every durable job has one end, under its number, which its client knows."""
    assert len({number for number, _ in journal.values()}) == len(journal) <= rows
    assert [each for each in submissions if each.is_wrong or not each.end] == []
    for each in submissions:
        if each.end.startswith(TryAgain.__name__):  # refused by a daemon that was stopping
            assert not each.is_durable, each
            continue
        state = each.end if each.end in ("done", "cancelled") else "failed"
        if each.end == "result lost":
            state = "done"
        is_given_up = GIVEN_UP in each.end and each.kills >= 3
        is_asked_for = {
            "done": each.kind != "failing",
            "cancelled": each.may_be_cancelled,
            "failed": each.kind == "failing" and each.end.startswith(JobFailed.__name__),
        }
        assert is_given_up or is_asked_for[state], each
        if each.is_durable:
            assert journal[each.ident] == (each.number, state), each


def test_sigterm_has_effect_while_clients_disconnect(stress: Any) -> None:
    for _ in range(stress.scaled(20)):
        with serving() as daemon:
            clients = [socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) for _ in range(20)]
            for client in clients:
                client.connect(str(daemon.folder / "run" / "session.sock"))
            for client in clients[:10]:
                client.close()
            daemon.process.terminate()
            for client in clients[10:]:
                client.close()
            assert daemon.process.wait(20) == 0
    stress.record("daemons", stress.scaled(20))
