"""`hetsched drain`, `stop` and `ping`: the daemon, whether it runs, and its end."""

from __future__ import annotations

import os
import select
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated

from hetsched.cli.flags import Json, switch
from hetsched.cli.terminal import out, out_json
from hetsched.client.control import Control
from hetsched.errors import Unavailable, UsageError
from hetsched.job import Queued
from hetsched.units import counted, format_seconds

if TYPE_CHECKING:
    from hetsched.transport.messages import JobLine


def drain(
    wait: Annotated[bool, switch("Wait until no job runs or could start.", "--wait")] = False,
    stop: Annotated[bool, switch("End the daemon when its jobs have ended.", "--stop")] = False,
    now: Annotated[
        bool, switch("End the daemon now; running jobs stop after their chunks.", "--now")
    ] = False,
    undo: Annotated[bool, switch("Accept jobs again.", "--undo")] = False,
    json: Json = False,
) -> None:
    if undo and (wait or stop or now):
        raise UsageError("--undo can't be combined with --wait, --stop or --now")
    if now and (wait or stop):
        raise UsageError("--now doesn't wait: omit --wait and --stop")
    with Control() as daemon:
        answer = daemon.drain(stop=stop and not wait, now=now, undo=undo)
        if wait:
            while waited_for := unstuck(daemon.status(["queued", "running"])):
                daemon.job(waited_for[0]).exception()
            answer = daemon.drain(stop=stop)
    if json:
        record = {"draining": answer.is_draining, "unfinished": answer.unfinished}
        out_json({"schema": "hetsched.drain/1", **record})
    elif undo:
        out("accepting jobs again")
    elif now:
        out("stopping: running jobs end after their current chunks")
    else:
        jobs = counted(answer.unfinished, "job")
        out(f"draining: no new jobs; {jobs} to finish{', then the daemon ends' if stop else ''}")


def unstuck(jobs: Sequence[JobLine]) -> list[int]:
    """Return the jobs that end without a release, the ones that run first.

    `jobs` are in the order of submission, so those that a job runs after come before it.
    """
    stuck: set[int] = set()
    for job in jobs:
        is_held = isinstance(job.state, Queued) and job.state.reason == "held"
        if is_held or any(earlier.job in stuck for earlier in job.after):
            stuck.add(job.job)
    free = [job for job in jobs if job.job not in stuck]
    return [job.job for job in sorted(free, key=lambda job: isinstance(job.state, Queued))]


def stop() -> None:
    with Control(reconnect=0) as daemon:
        pid = daemon.ping().pid
        try:
            process = os.pidfd_open(pid)
        except OSError as error:
            raise Unavailable(f"the daemon, pid {pid}, has ended: {error.strerror}") from None
        daemon.drain(now=True)
    select.select([process], [], [])  # readable when the process has ended
    os.close(process)
    out(f"stopped the daemon, pid {pid}")


def ping(json: Json = False) -> None:
    with Control() as daemon:
        began = time.perf_counter()
        pong = daemon.ping()
        seconds = time.perf_counter() - began
    if json:
        out_json(
            {
                "schema": "hetsched.pong/1",
                "pid": pong.pid,
                "version": pong.version,
                "uptime_seconds": pong.uptime_seconds,
                "round_trip_seconds": seconds,
            }
        )
        return
    uptime = format_seconds(pong.uptime_seconds)
    answer = f"pong from pid {pong.pid}, version {pong.version}, up {uptime}"
    out(f"{answer}: {format_seconds(seconds)}")
