"""`hetsched drain`: let the daemon finish its jobs and take no new ones."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated

import typer

from hetsched.cli.connect import control
from hetsched.cli.output.terminal import out, out_json
from hetsched.cli.request_flags import Json
from hetsched.errors import UsageError
from hetsched.job import Queued
from hetsched.transport.messages import JobLine
from hetsched.units import counted

if TYPE_CHECKING:
    from hetsched.client.control import Control

SCHEMA = "hetsched.drain/1"


def drain(
    wait: Annotated[
        bool, typer.Option("--wait", help="Wait until no job runs or could start.")
    ] = False,
    stop: Annotated[
        bool, typer.Option("--stop", help="End the daemon when its jobs have ended.")
    ] = False,
    now: Annotated[
        bool,
        typer.Option("--now", help="End the daemon now; running jobs stop after their chunks."),
    ] = False,
    undo: Annotated[bool, typer.Option("--undo", help="Accept jobs again.")] = False,
    json: Json = False,
) -> None:
    """Take no new jobs; finish those that run or wait."""
    if undo and (wait or stop or now):
        raise UsageError("--undo can't be combined with --wait, --stop or --now")
    if now and (wait or stop):
        raise UsageError("--now doesn't wait: omit --wait and --stop")
    with control() as daemon:
        answer = daemon.drain(stop=stop and not wait, now=now, undo=undo)
        if wait:
            _wait(daemon)
            answer = daemon.drain(stop=stop)
    if json:
        record = {"draining": answer.is_draining, "unfinished": answer.unfinished}
        out_json({"schema": SCHEMA, **record})
        return
    if undo:
        out("accepting jobs again")
    elif now:
        out("stopping: running jobs end after their current chunks")
    else:
        jobs = counted(answer.unfinished, "job")
        out(f"draining: no new jobs; {jobs} to finish{', then the daemon ends' if stop else ''}")


def _wait(daemon: Control) -> None:
    """Wait until all jobs have ended, but for those on hold and those that run after them."""
    while jobs := unstuck(daemon.status(["queued", "running"])):
        daemon.job(jobs[0]).exception()


def unstuck(jobs: Sequence[JobLine]) -> list[int]:
    """Return the jobs that end without a release, the ones that run first.

    `jobs` are in the order of submission, so those that a job runs after come before it.
    """
    stuck: set[int] = set()
    for job in jobs:
        reason = job.state.reason if isinstance(job.state, Queued) else ""
        after = {int(number) for number in re.findall(r"\d+", reason.removeprefix("after "))}
        if reason == "held" or (reason.startswith("after ") and after & stuck):
            stuck.add(job.job)
    free = [job for job in jobs if job.job not in stuck]
    return [job.job for job in sorted(free, key=lambda job: isinstance(job.state, Queued))]
