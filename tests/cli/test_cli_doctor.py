from __future__ import annotations

import os
import sqlite3
from pathlib import Path

import pytest
from served import Daemon

from hetsched.cli.commands import doctor

from .conftest import Call


@pytest.fixture
def journal(home: Path) -> Path:
    path = Path(os.environ["HETSCHED_STATE_DIR"]) / "journal.db"
    path.parent.mkdir(parents=True)
    return path


def test_a_running_daemon_is_reported_with_what_takes_no_jobs(daemon: Daemon, call: Call) -> None:
    with daemon.client() as client:
        client.switch_devices(disable=["cpu0"])
    lines = call("doctor").out.splitlines()

    rows = {line[4:].split("  ")[0].strip(): line for line in lines}
    assert f"pid {daemon.process.pid}, version " in rows["daemon"]
    assert "takes no jobs: disabled" in rows["daemon: cpu0"]


@pytest.mark.parametrize(
    ("soft_and_hard", "said"),
    [((1024, 20000), "1024, a daemon raises that to 20000"), ((64, 256), "low: jobs are refused")],
)
def test_limits_of_descriptors_are_pointed_out(
    soft_and_hard: tuple[int, int], said: str, call: Call, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(doctor.resource, "getrlimit", lambda which: soft_and_hard)
    assert said in call("doctor").out


def test_what_is_installed_is_listed_in_100_columns(call: Call) -> None:
    ended = call("doctor")
    lines = ended.out.splitlines()
    assert ended.code == 0
    words = {line.split()[1] for line in lines if line.startswith("ok")}
    assert words >= {"python", "numpy", "numba", "nvidia-ml-py", "cupy-cuda12x", "libzmq", "cores"}
    assert all(len(line) <= 100 for line in lines if "/" not in line)


def test_the_journal_is_reported_or_a_problem(call: Call, journal: Path) -> None:
    assert f"{journal}: none yet" in " ".join(call("doctor").out.split())

    with sqlite3.connect(journal) as database:
        database.execute("CREATE TABLE t(x)")
    database.close()
    assert f"{journal}: 8 KiB, written" in " ".join(call("doctor").out.split())

    journal.write_bytes(b"x" * 200)
    ended = call("doctor")
    assert (ended.code, "PROBLEM  journal" in ended.out) == (78, True)
