"""How the journal does: commits, their times, and whether it can be written. Pure."""

from __future__ import annotations

from hetsched.store.journal.journal import JournalStatistics
from hetsched.transport.inspection.metric_records import Metric, counter, gauge


def journal_metrics(statistics: JournalStatistics, is_failing: bool, dropped: int) -> list[Metric]:
    """Return the metrics; the last commit's time only if there was one."""
    metrics = [
        counter("hetsched_journal_commits", "Commits of the journal.", statistics.commits),
        counter("hetsched_journal_commit_failures", "Commits that failed.", statistics.failures),
        counter("hetsched_journal_commit_seconds", "Time that commits took.", statistics.seconds),
        gauge(
            "hetsched_journal_longest_commit_seconds",
            "Time that the slowest commit took.",
            statistics.longest,
        ),
        gauge(
            "hetsched_journal_failing",
            "1 while the journal can't be written; durable jobs are refused.",
            float(is_failing),
        ),
        counter(
            "hetsched_journal_dropped_jobs",
            "Ended jobs missing from history, since the journal couldn't be written.",
            dropped,
        ),
    ]
    if statistics.last_at is not None:
        help = "When the last commit was on disk."
        name = "hetsched_journal_last_commit_timestamp_seconds"
        metrics.append(gauge(name, help, statistics.last_at))
    return metrics
