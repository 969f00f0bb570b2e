"""The overview: running jobs, then those that run next, within one message."""

from __future__ import annotations

from pathlib import Path

from daemon_harness import daemon

from hetsched.client.client import Client
from hetsched.daemon.commands import CollectOverview
from hetsched.daemon.core import Core
from hetsched.daemon.records import DaemonInfo, Limits, Requester
from hetsched.daemon.requests.inspection import overview
from hetsched.job import JobSpec, JobState, Queued, Running
from hetsched.transport.codec import encode
from hetsched.transport.messages import MAX_FRAME, DaemonOverview, DeviceActivity, Overview

ME = Requester(b"c", 1, 1)


def core() -> Core:
    return Core(DaemonInfo(7, "1.0", "/", started=5.0, epoch=1000.0), Limits())


def add(core: Core, state: JobState, **spec: object) -> None:
    params = spec.pop("params", {})
    entry = core.ledger.new_entry(
        JobSpec(workload="w", params=params, **spec),  # type: ignore[arg-type]
        ME.session,
        1001.0,
        state.job,
        "",
    )
    entry.state = state


def ask(core: Core, waiting: int = 50) -> DaemonOverview:
    (command,) = overview.handle(core.ledger, ME, Overview(waiting), 10.0)
    assert isinstance(command, CollectOverview)
    return command.overview


def test_running_jobs_come_first_then_those_that_run_next() -> None:
    daemon_core = core()
    add(daemon_core, Queued(1, 1, "held"), priority=9)
    add(daemon_core, Queued(2, 1, "priority"))
    add(daemon_core, Running(3, "computing"))
    add(daemon_core, Queued(4, 1, "resources"), priority=5, label="big")
    add(daemon_core, Queued(5, 1, "after 2"))
    shown = ask(daemon_core)

    assert [job.job for job in shown.jobs] == [3, 4, 2, 1, 5]
    assert (shown.running, shown.waiting, shown.ended) == (1, 4, 0)
    assert (shown.jobs[1].priority, shown.jobs[1].label) == (5, "big")
    assert (shown.pid, shown.uptime_seconds, shown.now) == (7, 5.0, 1010.0)


def test_only_the_first_waiting_jobs_are_listed() -> None:
    daemon_core = core()
    for number in range(1, 301):
        add(daemon_core, Queued(number, 0))

    assert [job.job for job in ask(daemon_core, 3).jobs] == [1, 2, 3]
    assert ask(daemon_core, -1).jobs == ()
    assert len(ask(daemon_core, 10**9).jobs) == overview.MAX_JOBS


def test_long_parameters_are_left_out_so_that_it_fits_a_message() -> None:
    daemon_core = core()
    add(daemon_core, Queued(1, 0), params={"text": "x" * 800_000})
    for number in range(2, 100):
        add(daemon_core, Queued(number, 0), params={"text": "x" * 20_000})
    shown = ask(daemon_core, 200)

    assert len(encode(shown)) <= MAX_FRAME // 2 + 4096
    assert (shown.jobs[0].params, shown.waiting) == ({}, 99)
    assert len(shown.jobs) < 99


def test_a_client_gets_devices_and_what_they_do(tmp_path: Path) -> None:
    with daemon(tmp_path) as served, Client(tmp_path) as client:
        job = client.submit("wait")
        shown = client.overview()
        served.ask(lambda: served.engine.finish(job.id))

    assert [info.name for info in shown.devices] == ["cpu0"]
    assert shown.absent == {"gpu": "none here"}
    assert shown.activities == (
        DeviceActivity(device="cpu0", job=1, workload="wait", variant="fake", share=1),
    )
    assert shown.arena_limit == 64 << 20
