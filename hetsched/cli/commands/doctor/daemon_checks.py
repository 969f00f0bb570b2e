"""Check the running daemon: its event loop, limits, devices in quarantine, and the journal."""

from __future__ import annotations

import time

from hetsched import paths
from hetsched.cli.commands.doctor.check_result import CheckResult
from hetsched.cli.commands.doctor.sqlite_version import is_sqlite, user_version
from hetsched.cli.connect import control
from hetsched.errors import ConfigError, Unavailable
from hetsched.units import counted, format_bytes, format_seconds

MAX_LOOP_SECONDS = 0.5
"""A callback above this is reported as slow: a human notices it."""
LOW_DESCRIPTORS = 0.8
"""Fraction of the limit above which open descriptors are reported as many. Arbitrary."""


def daemon() -> list[CheckResult]:
    """Report the daemon; none is needed for `run`, so its absence isn't an error."""
    try:
        with control() as connection:
            pong = connection.ping()
            metrics = connection.metrics()
            listed = connection.device_list()
    except Unavailable as error:
        return [CheckResult("daemon", f"{error}; not needed for `hetsched run`")]
    uptime = format_seconds(pong.uptime_seconds)
    return [
        CheckResult("daemon", f"pid {pong.pid}, version {pong.version}, up {uptime}"),
        *(
            CheckResult(f"daemon: {name}", f"takes no jobs: {why}")
            for name, why in listed.absent.items()
        ),
        *(CheckResult(f"daemon: {name}", why) for name, why in listed.restricted.items()),
        *daemon_figures(metrics),
    ]


def daemon_figures(metrics: str) -> list[CheckResult]:
    """Return rows about the daemon's event loop, descriptors, memory and journal."""
    from prometheus_client.parser import text_string_to_metric_families

    values = {
        (sample.name, *sample.labels.values()): sample.value
        for family in text_string_to_metric_families(metrics)
        for sample in family.samples
    }
    rows = [_loop(values), _descriptors(values), _arena(values), _commits(values)]
    return [row for row in rows if row is not None]


def journal() -> list[CheckResult]:
    """Report the journal's file, without opening it: the daemon holds it."""
    path = paths.journal_path()
    try:
        is_journal, version = is_sqlite(path), user_version(path)
        size = path.stat().st_size
    except FileNotFoundError:
        return [CheckResult("journal", f"{path}: none yet")]
    except OSError as error:
        return [CheckResult("journal", f"{path}: {error.strerror}", ConfigError.code)]
    if not is_journal:
        text = f"{path}: not a journal of hetsched; move it away"
        return [CheckResult("journal", text, ConfigError.code)]
    wal = path.with_name(f"{path.name}-wal")
    wal_size = wal.stat().st_size if wal.exists() else 0
    written = max(p.stat().st_mtime for p in (path, wal) if p.exists())
    text = f"{path}: version {version or 'unknown'}, {format_bytes(size)}"
    text += f" and {format_bytes(wal_size)} of write-ahead log, written {_ago(written)}"
    return [CheckResult("journal", text)]


Values = dict[tuple[str, ...], float]


def _loop(values: Values) -> CheckResult | None:
    longest = values.get(("hetsched_loop_longest_callback_seconds",))
    if longest is None:
        return None
    text = f"the slowest callback took {format_seconds(longest)}"
    if longest > MAX_LOOP_SECONDS:
        text += "; slow: clients notice that (the log names slow callbacks)"
    return CheckResult("daemon: loop", text)


def _descriptors(values: Values) -> CheckResult | None:
    used = values.get(("hetsched_process_open_fds",))
    limit = values.get(("hetsched_process_max_fds",))
    if used is None or not limit:
        return None
    many = "; many: jobs are refused before they run out" if used > LOW_DESCRIPTORS * limit else ""
    return CheckResult("daemon: descriptors", f"{used:.0f} of {limit:.0f} in use{many}")


def _arena(values: Values) -> CheckResult | None:
    used, warm, limit = (
        values.get(("hetsched_arena_bytes", kind)) for kind in ("used", "warm", "limit")
    )
    if used is None or warm is None or limit is None:
        return None
    text = f"{format_bytes(used)} in use, {format_bytes(warm)} kept, of {format_bytes(limit)}"
    return CheckResult("daemon: shared memory", text)


def _commits(values: Values) -> CheckResult | None:
    commits = values.get(("hetsched_journal_commits_total",))
    if commits is None:
        return None
    failures = values.get(("hetsched_journal_commit_failures_total",), 0.0)
    text = counted(int(commits), "commit")
    if commits:
        mean = values.get(("hetsched_journal_commit_seconds_total",), 0.0) / commits
        longest = values.get(("hetsched_journal_longest_commit_seconds",), 0.0)
        text += f", {format_seconds(mean)} on average, the longest {format_seconds(longest)}"
    last = values.get(("hetsched_journal_last_commit_timestamp_seconds",))
    if last:
        text += f", the last {_ago(last)}"
    if failures:
        text += f"; {counted(int(failures), 'failed commit')} (the log has the reason)"
    return CheckResult("daemon: journal", text)


def _ago(timestamp: float) -> str:
    return f"{format_seconds(max(0.0, time.time() - timestamp))} ago"
