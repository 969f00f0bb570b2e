"""`hetsched doctor` on limits, the journal and a running daemon."""

from __future__ import annotations

import errno
import os
import sqlite3
from collections.abc import Iterator
from pathlib import Path

import pytest
from daemon_harness import Harness, daemon

from hetsched.cli.commands import doctor

from .conftest import Call


@pytest.fixture
def served(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Harness]:
    folder = tmp_path / "run"
    folder.mkdir(mode=0o700)
    monkeypatch.setenv("HETSCHED_RUNTIME_DIR", str(folder))
    with daemon(folder) as harness:
        yield harness


def test_a_running_daemon_is_reported(call: Call, served: Harness) -> None:
    ended = call("doctor")

    rows = {line[4:].split("  ")[0].strip(): line for line in ended.out.splitlines()}
    assert "gpu: takes no jobs" not in rows
    assert "takes no jobs: none here" in rows["daemon: gpu"]
    assert "the slowest callback took" in rows["daemon: loop"]
    assert " in use" in rows["daemon: descriptors"]
    assert "of 64 MiB" in rows["daemon: shared memory"]


def test_a_daemon_raises_its_limit_of_descriptors(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doctor.resource, "getrlimit", lambda which: (1024, 20000))

    assert doctor.limits()[0].found == "1024, a daemon raises that to 20000"


def test_low_descriptor_limits_are_pointed_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doctor.resource, "getrlimit", lambda which: (64, 256))

    assert "low: jobs are refused" in doctor.limits()[0].found


@pytest.mark.parametrize(
    ("code", "reason"), [(errno.ENOMEM, "no contiguous memory"), (errno.EINVAL, "not on this")]
)
def test_memory_without_a_single_huge_page_is_pointed_out(
    monkeypatch: pytest.MonkeyPatch, code: int, reason: str
) -> None:
    def fail() -> float:
        raise OSError(code, os.strerror(code))

    monkeypatch.setattr("hetsched.transport.pages.seconds_of_one_page", fail)
    (found,) = [each.found for each in doctor.memory() if each.what == "huge pages"]
    assert f"none can be made now ({reason}" in found


def test_what_is_installed_is_listed_in_100_columns(call: Call) -> None:
    ended = call("doctor")
    words = {line.split()[1] for line in ended.out.splitlines() if line.startswith("ok")}
    assert words >= {"python", "numpy", "numba", "nvidia-ml-py", "cupy", "libzmq", "cores"}
    assert all(len(line) <= 100 for line in ended.out.splitlines() if "/" not in line)


def test_the_journal_is_reported_with_its_version(tmp_path: Path) -> None:
    path = Path(os.environ["HETSCHED_STATE_DIR"]) / "journal.db"
    path.parent.mkdir(parents=True)
    assert doctor.journal()[0].found.endswith("none yet")

    with sqlite3.connect(path) as database:
        database.executescript("PRAGMA user_version = 7; CREATE TABLE t(x);")
    database.close()
    assert "version 7, " in doctor.journal()[0].found
    assert doctor.journal()[0].found.endswith(" ago")


def test_a_file_that_is_no_journal_is_a_problem() -> None:
    path = Path(os.environ["HETSCHED_STATE_DIR"]) / "journal.db"
    path.parent.mkdir(parents=True)
    path.write_bytes(b"x" * 200)

    assert doctor.journal()[0].code == 78


def figures(*lines: str) -> dict[str, str]:
    text = "".join(f"{line}\n" for line in lines)
    return {result.what: result.found for result in doctor.daemon_figures(text)}


def test_slow_loops_and_scarce_descriptors_are_pointed_out() -> None:
    found = figures(
        "hetsched_loop_longest_callback_seconds 0.8",
        "hetsched_process_open_fds 90",
        "hetsched_process_max_fds 100",
    )

    assert "the slowest callback took 800 ms; slow" in found["daemon: loop"]
    assert found["daemon: descriptors"].startswith("90 of 100 in use; many")


def test_the_journals_commits_are_reported() -> None:
    found = figures(
        "hetsched_journal_commits_total 4",
        "hetsched_journal_commit_failures_total 1",
        "hetsched_journal_commit_seconds_total 0.02",
        "hetsched_journal_longest_commit_seconds 0.01",
    )

    assert found["daemon: journal"] == (
        "4 commits, 5 ms on average, the longest 10 ms; 1 failed commit (the log has the reason)"
    )


def test_an_older_daemon_without_these_figures_is_no_problem() -> None:
    assert figures() == {}
