"""`hetsched drain`, `stop`, `ping` and `devices`: the daemon and its devices."""

from __future__ import annotations

import os
import select
import time
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Annotated, Any

import typer

from hetsched.cli import flags
from hetsched.cli.flags import ConfigName, Json
from hetsched.cli.terminal import out, out_json, out_lines, out_table
from hetsched.client.control import Control
from hetsched.device import DeviceInfo
from hetsched.errors import Unavailable, UsageError
from hetsched.job import Queued
from hetsched.text import MAX_GROUP_ROWS, grouped_rows
from hetsched.units import counted, format_bytes, format_seconds

if TYPE_CHECKING:
    from hetsched.transport.messages import DeviceList, JobLine


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
        process = os.pidfd_open(pid)
        daemon.drain(now=True)
    select.select([process], [], [])
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


def _switch(help: str) -> Any:
    """Return the option of a flag with names of devices."""
    help = f"{help} Until the daemon stops."
    return typer.Option(metavar="A,B", help=help, parser=flags.reader(flags.words))


def devices(
    config: ConfigName = None,
    probe: Annotated[
        bool,
        typer.Option(
            "--probe", help="Have the daemon look for missing devices and retry failed ones."
        ),
    ] = False,
    enable: Annotated[list[Any] | None, _switch("Let devices take jobs again.")] = None,
    disable: Annotated[list[Any] | None, _switch("Let devices take no more jobs.")] = None,
    json: Json = False,
) -> None:
    changes = {"--probe": probe, "--enable": enable, "--disable": disable}
    flag = next((flag for flag, value in changes.items() if value), "")
    if flag and config is not None:
        raise UsageError(f"{flag} is for the daemon, which has its own configuration: no --config")
    if config is None:
        try:
            served = _served(probe, flags.joined(enable), flags.joined(disable))
            _show("daemon", served.devices, served.absent, served.restricted, json)
            return
        except Unavailable:
            if flag:
                raise
    from hetsched.config import load
    from hetsched.devices.probe import probe as find_devices

    settings, source = load(config)
    machine = find_devices(settings)
    infos = [process.device for process in machine.processes]
    _show(source, infos, machine.absent, {}, json)


def _served(probe: bool, enable: tuple[str, ...], disable: tuple[str, ...]) -> DeviceList:
    """Return the daemon's devices after these changes. Raises Unavailable without a daemon."""
    with Control() as daemon:
        if enable or disable:
            switched = daemon.switch_devices(enable, disable)
            return daemon.device_list(probe=True) if probe else switched
        return daemon.device_list(probe=probe)


def _show(
    source: str,
    infos: Sequence[DeviceInfo],
    absent: Mapping[str, str],
    restricted: Mapping[str, str],
    json: bool,
) -> None:
    if json:
        listed = {"devices": list(infos), "absent": absent, "restricted": restricted}
        out_json({"schema": "hetsched.devices/1", "config": source, **listed})
        return
    rows = [
        _row(label, members)
        for label, members in grouped_rows(infos, lambda info: info.name, MAX_GROUP_ROWS)
    ]
    out_table(("device", "kind", "description", "memory", "cores", "nodes"), rows, left=3)
    out_lines([f"{name}: not available: {reason}" for name, reason in absent.items()])
    out_lines([f"{name}: {reason}" for name, reason in restricted.items()])


def _row(label: str, members: list[DeviceInfo]) -> tuple[str, ...]:
    first = members[0]
    cores = sorted({core for member in members for core in member.cores})
    memory = "-" if first.memory is None else format_bytes(first.memory)
    nodes = sorted({member.numa_node for member in members if member.numa_node is not None})
    return label, first.kind, first.identity, memory, _ranges(cores), _ranges(nodes)


def _ranges(numbers: list[int]) -> str:
    """Format [0, 1, 2, 5] as "0-2,5"."""
    runs: list[list[int]] = []
    for number in numbers:
        if runs and number == runs[-1][1] + 1:
            runs[-1][1] = number
        else:
            runs.append([number, number])
    return ",".join(f"{a}" if a == b else f"{a}-{b}" for a, b in runs) or "-"
