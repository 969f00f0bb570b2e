"""`hetsched top`: jobs and devices, live, on the whole terminal."""

from __future__ import annotations

import contextlib
import os
import select
import signal
import sys
import termios
import tty
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from rich.console import Console, ConsoleDimensions
from rich.live import Live
from rich.text import Text

from hetsched.cli.flags import Cluster, Insecure
from hetsched.cli.hosts import hosts_screen
from hetsched.cli.jobs import event_detail, word
from hetsched.cli.terminal import can_move_cursor
from hetsched.client.control import Control
from hetsched.errors import HetschedError, UsageError
from hetsched.text import MAX_GROUP_ROWS, clean, columns, grouped_rows, number, parameters
from hetsched.transport.messages import DaemonOverview, DeviceActivity
from hetsched.units import counted, format_bytes, format_seconds

INTERVAL_SECONDS = 1.0
ANSWER_SECONDS = 10.0
MAX_WAITING = 100  # Waiting jobs that are listed
MAX_DEVICE_ROWS = 12  # Of the screen: about half of a terminal's 24 lines; jobs have the rest
KEYS = "q quit"
BAR = 10  # Characters of a bar


def top(cluster: Cluster = None, insecure: Insecure = False) -> int:
    if not (sys.stdin.isatty() and sys.stdout.isatty() and can_move_cursor()):
        raise UsageError("top needs a terminal; elsewhere use: hetsched status --json")
    if cluster is not None:
        with hosts_screen(cluster, insecure) as lines:
            return _live(lambda height: _screen(lines(), "", height))
    daemon: Control | None = _connect()
    overview: DaemonOverview | None = None

    def look(height: int) -> Text:
        nonlocal daemon, overview
        error = ""
        try:
            daemon = daemon or _connect()
            overview = daemon.overview(MAX_WAITING)
        except HetschedError as failure:
            error = str(failure)
            if daemon is not None:
                daemon.close()
            daemon = None
        return screen(overview, error, height)

    return _live(look)


def _live(look: Callable[[int], Text]) -> int:
    """Show what `look` returns for a height in lines, until q or Ctrl-C."""
    console = Console(markup=False, highlight=False, emoji=False)
    live = Live(console=console, screen=True, auto_refresh=False)
    for each in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(each, _end)
    try:
        with _single_keys() as keys, live:
            while True:
                size = os.get_terminal_size(sys.stdout.fileno())  # whatever COLUMNS says
                console.size = ConsoleDimensions(size.columns or 80, size.lines or 24)
                live.update(look(console.height), refresh=True)
                readable, _, _ = select.select([keys], [], [], INTERVAL_SECONDS)
                pressed = os.read(keys, 100) if readable else b"none"
                if not pressed or b"q" in pressed:
                    return 0
    except KeyboardInterrupt:  # one of the ways to end it
        return 130


def _end(signum: int, frame: object) -> None:
    raise SystemExit(128 + signum)


def _connect() -> Control:
    return Control(timeout=ANSWER_SECONDS, reconnect=0)


@contextlib.contextmanager
def _single_keys() -> Iterator[int]:
    """Yield standard input, on which each key arrives at once and unechoed."""
    fd = sys.stdin.fileno()
    before = termios.tcgetattr(fd)
    tty.setcbreak(fd, termios.TCSADRAIN)
    try:
        yield fd
    finally:
        with contextlib.suppress(termios.error):  # the terminal has gone
            termios.tcsetattr(fd, termios.TCSADRAIN, before)


# ---- the screen. Pure


def screen(overview: DaemonOverview | None, error: str, height: int) -> Text:
    """Return `height` lines; the last one is `error`, or the keys."""
    lines = [Text("hetsched: waiting for the daemon", "bold")]
    if overview is not None:
        title = (
            f"hetsched, up {format_seconds(overview.daemon.uptime_seconds)}"
            f"{', stopping' if overview.is_stopping else ''}:"
            f" {overview.running} running, {overview.waiting} waiting, {overview.ended} ended;"
            f" {format_bytes(overview.arena_used)} of {format_bytes(overview.arena_limit)}"
        )
        devices, jobs = _devices(overview), _jobs(overview)
        lines = [Text(title, "bold"), Text(), *devices, Text(), *jobs]
    return _screen(lines, error, height)


def _screen(lines: Sequence[Text], error: str, height: int) -> Text:
    lines = [*lines, *[Text()] * height][: height - 1]
    footer = Text(clean(error), "red") if error else Text(KEYS, "dim")
    return Text("\n", no_wrap=True, overflow="crop").join([*lines, footer])


def _devices(overview: DaemonOverview) -> list[Text]:
    """Return a row for each activity, idle and missing device; many cores share one."""
    rows = _device_rows(overview, MAX_GROUP_ROWS)
    if len(rows) > MAX_DEVICE_ROWS:
        rows = _device_rows(overview, 1)
    header = ("device", "job", "variant", "", "done/share", "units/s", "predicted", "ratio")
    table = iter(columns(header, [row for row in rows if not isinstance(row, str)], 4))
    lines = [Text(next(table), "bold")]
    for row in rows[:MAX_DEVICE_ROWS]:
        lines.append(Text(clean(row), "dim") if isinstance(row, str) else Text(next(table)))
    if (hidden := len(rows) - MAX_DEVICE_ROWS) > 0:
        lines.append(Text(f"  {hidden} more rows", "dim"))
    return lines


def _device_rows(overview: DaemonOverview, limit: int) -> list[Sequence[str] | str]:
    """Return the cells of each row, or a line about the row above or a missing device."""
    rows: list[Sequence[str] | str] = []
    for job in dict.fromkeys(activity.job for activity in overview.activities):
        members = [activity for activity in overview.activities if activity.job == job]
        for label, group in grouped_rows(members, lambda activity: activity.device, limit):
            rows.append(_activity_cells(label, group))
            first = group[0]
            if len(group) == 1 and (first.h2d_busy or first.d2h_busy or first.h2d_rate):
                rows.append(_link(first))
    listed = overview.devices
    hidden = {activity.device for activity in overview.activities} | set(listed.absent)
    idle = [each for each in listed.devices if each.name not in hidden and not each.members]
    for label, _ in grouped_rows(idle, lambda info: info.name, limit):
        rows.append((label, "-", "idle", *[""] * 5))
    return rows + [f"{n}: {why}" for n, why in {**listed.restricted, **listed.absent}.items()]


def _activity_cells(label: str, group: Sequence[DeviceActivity]) -> tuple[str, ...]:
    first = group[0]
    done, share = sum(a.done for a in group), sum(a.share for a in group)
    speed, predicted = _sum(a.speed for a in group), _sum(a.predicted_speed for a in group)
    part = first.compute_busy if first.is_iterative else done / share if share else 0.0
    filled = min(BAR, int(BAR * part))
    return (
        label,
        str(first.job),
        "+".join(sorted({a.variant for a in group})),
        f"[{'#' * filled}{'-' * (BAR - filled)}]",
        counted(share, "row") if first.is_iterative else f"{done}/{share}",
        number(speed),
        number(predicted),
        f"{speed / predicted:.0%}" if speed is not None and predicted else "-",
    )


def _sum(values: Any) -> float | None:
    known = list(values)
    return None if None in known else sum(known)


def _link(activity: DeviceActivity) -> str:
    to, back = (
        "" if rate is None else f"{format_bytes(rate)}/s"
        for rate in (activity.h2d_rate, activity.d2h_rate)
    )
    return (
        f"  link: h2d {to} {activity.h2d_busy:.0%} busy, computing {activity.compute_busy:.0%},"
        f" d2h {back} {activity.d2h_busy:.0%} busy"
    )


def _jobs(overview: DaemonOverview) -> list[Text]:
    if not overview.jobs:
        return [Text("no jobs; try: hetsched submit fft --batch 256x512x512", "dim")]
    rows = []
    for job in overview.jobs:
        since = job.submitted_at if job.started_at is None else job.started_at
        name = f"{job.workload} ({job.label})" if job.label else job.workload
        stage = f"{event_detail(job.state)}, {format_seconds(max(0.0, overview.now - since))}"
        cells = (str(job.job), str(job.priority), name, word(job.state), stage)
        rows.append((*cells, parameters(job.params)))
    header = ("job", "prio", "workload", "state", "", "parameters")
    first, *others = columns(header, rows, len(header))
    return [Text(first, "bold"), *map(Text, others)]
