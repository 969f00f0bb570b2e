"""What was acknowledged survives the daemon, under its number, and ends once."""

from __future__ import annotations

import contextlib
import json
import shutil
import signal
import sqlite3
import threading
import weakref
from collections.abc import Iterator
from concurrent.futures import CancelledError
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from served import CORES, PLUG_INS, Daemon, Gate, computes, refused, serving, until, word

TOY = "toys:Toy"
CONFIG = "[queue]\nsmall_jobs = false\n" + CORES
"""One job at a time, though a killed daemon has learnt how long they take."""
SLOW_FILTER = """
import time
def doubled(block, seconds):
    time.sleep(seconds * len(block))
    return 2 * block
"""
KEPT = 256
"""Shared arrays of a client that outlive a daemon."""


@pytest.fixture(scope="module")
def shared() -> Iterator[Daemon]:
    with serving(CONFIG) as daemon:
        yield daemon


@pytest.fixture
def mortal(shared: Daemon) -> Iterator[Daemon]:
    """One that may be killed."""
    if shared.process.poll() is not None:
        shared.start()
    with shared.client(reconnect=0) as client:
        client.cancel_all()
    yield shared


def restart(daemon: Daemon) -> None:
    daemon.kill()
    daemon.start()


def rows(daemon: Daemon) -> dict[int, Any]:
    return {row["job"]: row for row in daemon.call("status", "--json").json["jobs"]}


def test_durable_jobs_end_once_under_their_numbers_after_a_kill(
    mortal: Daemon, gate: Gate, tmp_path: Path
) -> None:
    log = str(tmp_path / "log")
    with mortal.client() as client:
        running = client.submit(TOY, units=1, gate=str(gate.path))
        names = [f"job{i}" for i in range(10)]
        waiting = [client.submit(TOY, units=1, log=log, name=name) for name in names]
        assert all(job.durability == "durable" for job in (running, *waiting))
        numbers = [job.id for job in waiting]
        until(gate.pids)
        restart(mortal)
        gate.open()
        for job in (running, *waiting):
            job.exception(60)
        assert [job.id for job in waiting] == numbers
        assert [number for number in rows(mortal) if number >= running.id] == [
            running.id,
            *numbers,
        ]
    assert Path(log).read_text().split() == names


def test_the_journal_keeps_as_many_ended_jobs_as_configured(mortal: Daemon) -> None:
    with mortal.client() as client:
        numbers = [client.submit("fft", batch="1x8x8").id for _ in range(6)]
        client.job(numbers[-1]).result(60)
    mortal.stop()
    mortal.config.write_text(CONFIG + "\n[journal]\nkeep_jobs = 2\n")
    mortal.start()
    with mortal.client() as client:
        assert [line.job for line in client.history()] == numbers[-2:]
    mortal.config.write_text(CONFIG)


def test_numbers_are_never_given_again(mortal: Daemon) -> None:
    seen: list[int] = []
    for end in (mortal.kill, mortal.stop):
        with mortal.client(reconnect=0) as client:
            jobs = [client.submit("fft", batch="1x8x8") for _ in range(3)]
            seen += [job.id for job in jobs]
            jobs[-1].result(60)
            client.clean()
        end()
        mortal.start()
    with mortal.client() as client:
        seen.append(client.submit("fft", batch="1x8x8").id)
    assert seen == sorted(set(seen))


def test_an_id_finds_its_job_after_a_kill(mortal: Daemon) -> None:
    with mortal.client() as client:
        job = client.submit("fft", batch="2x8x8", id="nightly")
        job.result(60)
        assert client.submit("fft", batch="2x8x8", id="nightly").id == job.id
        restart(mortal)
        assert client.submit("fft", batch="2x8x8", id="nightly").id == job.id
        with refused(65, "nightly"):
            client.submit("fft", batch="3x8x8", id="nightly")


def test_a_job_on_a_clients_arrays_continues_with_that_client(mortal: Daemon, gate: Gate) -> None:
    with mortal.client() as client:
        x, words = np.full((4, 4), 5.0), {"gate": str(gate.path), "id": "mine"}
        job = client.submit(TOY, x, units=4, **words)
        assert job.durability == "volatile"
        until(gate.pids)
        restart(mortal)
        until(lambda: len(gate.pids()) > 1)
        assert client.submit(TOY, x, units=4, **words).id == job.id  # from a copy elsewhere
        with refused(65, "mine"):
            client.submit(TOY, x[:3], units=3, **words)
        gate.open()
        assert (job.result(60) == 11).all()


def test_a_job_on_a_clients_arrays_whose_result_is_lost_runs_again(
    mortal: Daemon, gate: Gate
) -> None:
    restarted = threading.Event()

    def busy(state: Any) -> None:  # and so hears of no end before the restart
        if type(state).__name__ == "Running":
            assert restarted.wait(60)

    with mortal.client() as client, mortal.client(reconnect=0) as other:
        x, words = np.full((4, 4), 5.0), {"gate": str(gate.path), "id": "lost"}
        job = client.submit(TOY, x, units=4, follow=busy, **words)
        until(gate.pids)
        number = job.id
        gate.open()
        other.job(number).exception(60)
        other.cancel(other.submit(TOY, units=1, hold=True).id)  # so both ends are on disk
        restart(mortal)
        restarted.set()
        assert (job.result(60) == 11).all()
        assert rows(mortal)[number]["state"] == rows(mortal)[job.id]["state"] == "done"
        with mortal.client() as late, refused(66, "from the program that has its arrays"):
            late.job(number).result(60)


def test_an_array_of_the_last_daemon_is_used_in_place_by_the_next(mortal: Daemon) -> None:
    with mortal.client() as client:
        x, y = client.empty((4, 4), "float64"), client.empty((4, 4), "float64")
        x[:] = 1
        restart(mortal)
        client.submit(TOY, x, out=y, units=4).result(60)
        assert (y == 3).all()
        assert mortal.memory() == 2 * 65536
        del x, y
        until(lambda: mortal.memory() == 0)


def test_jobs_of_a_chain_go_on_with_a_daemon_that_knows_none_of_them(
    mortal: Daemon, gate: Gate
) -> None:
    with mortal.client() as client:
        first = client.submit(TOY, np.ones((1, 4)), units=1, gate=str(gate.path))
        second = client.submit(TOY, np.ones((1, 4)), units=1, after=first)
        until(gate.pids)
        mortal.kill()
        shutil.rmtree(mortal.folder / "state")
        mortal.start()  # its numbers may be those of before
        until(lambda: rows(mortal).get(second.id, {}).get("reason") == f"after {first.id}")
        gate.open()
        assert (second.result(60) == 3).all()


def test_a_job_of_another_client_that_the_next_daemon_does_not_know_is_lost(
    mortal: Daemon,
) -> None:
    with mortal.client(reconnect=0) as owner, mortal.client() as other:
        number = owner.submit(TOY, np.ones((1, 4)), units=1, hold=True).id
        job = other.job(number)
        restart(mortal)
        with refused(66, f"no job {number}"):
            job.result(60)


def test_memory_that_cannot_be_passed_on_is_a_lost_input(mortal: Daemon) -> None:
    with mortal.client() as client:
        held = [client.empty(3) for _ in range(KEPT)]
        x = client.empty((4, 4), "float64")
        del held
        job = client.submit(TOY, x, units=4, hold=True)
        restart(mortal)
        with refused(75, f"job {job.id} is lost: the job's shared memory"):
            job.result(60)
        assert client.submit(TOY, x, units=4).result(60).shape == (4, 4)


def test_a_client_that_does_not_reconnect_hears_what_became_of_its_job(
    mortal: Daemon, gate: Gate
) -> None:
    with mortal.client(reconnect=0) as client:
        job = client.submit(TOY, units=4, gate=str(gate.path))
        computes(job)
        mortal.kill()
        with refused(75, f"job {job.id} "):
            job.result(60)


def test_place_in_the_queue_and_history_survive(mortal: Daemon, gate: Gate) -> None:
    with mortal.client() as client:
        done = client.submit("fft", batch="1x8x8", label="old")
        done.result(60)
        running = client.submit(TOY, units=1, gate=str(gate.path))
        computes(running)  # else the job to be cancelled may have its turn first
        held = client.submit(TOY, units=1, hold=True, priority=7, label="later", retries=2)
        after = client.submit(TOY, units=1, after=held)
        dropped = client.submit(TOY, units=1, priority=1)
        client.cancel(dropped.id)
        with pytest.raises(CancelledError):
            dropped.result(60)
        restart(mortal)
        found = rows(mortal)
        assert found[held.id]["reason"] == "held"
        assert (found[held.id]["priority"], found[held.id]["label"]) == (7, "later")
        assert found[after.id]["reason"] == f"after {held.id}"
        assert found[dropped.id]["state"] == "cancelled"
        gate.open()
        running.exception(60)
        client.release(held.id)
        after.exception(60)
    history = mortal.call("history", "--json").json["jobs"]
    assert [row["job"] for row in history if row["label"] == "old"] == [done.id]


def test_a_result_in_memory_ends_with_the_daemon_and_its_job_stays_done(mortal: Daemon) -> None:
    with mortal.client() as client:
        job = client.submit("fft", batch="2x8x8")
        y = job.result(60)
        restart(mortal)
        with refused(66):
            client.job(job.id).result(60)
        again = client.job(client.retry(job.id))
        np.testing.assert_allclose(again.result(60), y, atol=1e-3)


def test_a_result_whose_naming_fails_while_the_daemon_stops_is_named_by_the_next_one(
    tmp_path: Path,
) -> None:
    log, naming, failing = tmp_path / "log", tmp_path / "naming", tmp_path / "failing"
    (tmp_path / "sitecustomize.py").write_text(f"""
import errno, os, pathlib, time

def link(hidden, target):
    pathlib.Path({str(naming)!r}).touch()
    while not os.path.exists({str(failing)!r}):
        time.sleep(0.01)
    raise OSError(errno.EMFILE, "no descriptor")

os.link = link
""")
    with serving(PYTHONPATH=f"{PLUG_INS}:{tmp_path}") as daemon, daemon.client() as client:
        words = {"units": 1, "log": str(log), "name": "run"}
        job = client.submit(TOY, out=tmp_path / "y.npy", **words)
        until(naming.exists)
        daemon.process.send_signal(signal.SIGTERM)
        until(lambda: "no new jobs" in daemon.log.read_text())
        failing.touch()
        daemon.process.wait(60)
        daemon.environment["PYTHONPATH"] = PLUG_INS
        daemon.start()
        job.result(60)
    assert (tmp_path / "y.npy").exists()
    assert log.read_text().split() == ["run"]
    assert not list(tmp_path.glob(".*"))


def test_a_job_whose_planning_crashed_three_daemons_fails(mortal: Daemon) -> None:
    with mortal.client() as client:
        job = client.submit("toys:Deadly", units=1, hold=True)
        for _ in range(9):  # a crash may come before it is written that the job runs
            with contextlib.suppress(Exception), mortal.client(reconnect=0) as other:
                other.release(job.id)  # the daemon may crash before it answers, or writes it
            until(lambda: job.done() or mortal.process.poll() is not None)
            if job.done():
                break
            mortal.start()
        with refused(1):
            job.result(60)
        assert client.submit("fft", batch="1x8x8").result(60).shape == (1, 8, 8)


def test_wait_goes_on_with_the_next_daemon(mortal: Daemon, gate: Gate) -> None:
    with mortal.client() as client:
        job = client.submit(TOY, units=1, gate=str(gate.path))
        until(lambda: gate.pids() and "hetsched_sessions 1" in client.metrics())
        with mortal.started("wait", str(job.id), "--json") as waiting:
            assert waiting.stderr is not None
            assert waiting.stderr.readline() == f"running {job.id}\n"  # it follows the job by now
            restart(mortal)
            gate.open()
            out, _ = waiting.communicate(timeout=60)
    assert waiting.returncode == 0
    assert json.loads(out.splitlines()[-1])["state"] == "done"


def test_a_result_is_freed_with_its_last_reference_after_a_restart_too(mortal: Daemon) -> None:
    with mortal.client() as client:
        job = client.submit("toys:Slow", units=100, milliseconds=20)
        computes(job)
        restart(mortal)
        result = job.result(60)
        reference = weakref.ref(result)
        del job, result
        until(lambda: reference() is None)


def test_an_orderly_restart_continues_waiting_and_running_jobs(mortal: Daemon) -> None:
    with mortal.client() as client:
        running = client.submit("toys:Slow", units=100, milliseconds=20)
        waiting = client.submit(TOY, units=4)
        computes(running)
        assert mortal.stop() == 0
        mortal.start()
        for job in (running, waiting):
            assert job.exception(60) is None or word(job) == "done"


def test_a_journal_of_a_newer_version_is_refused_and_left_as_it_is(mortal: Daemon) -> None:
    mortal.stop()
    path = mortal.folder / "state" / "journal.db"
    ours = path.read_bytes()
    execute(path, "PRAGMA user_version = 99")
    newer = path.read_bytes()
    ended = mortal.call("serve")
    assert (ended.code, "newer" in ended.error) == (78, True)
    assert path.read_bytes() == newer
    path.write_bytes(ours)
    mortal.start()


def execute(path: Path, statement: str) -> None:
    with contextlib.closing(sqlite3.connect(path)) as connection, connection:
        connection.execute(statement)


def test_a_damaged_journal_is_set_aside_and_numbers_go_on(mortal: Daemon) -> None:
    with mortal.client() as client:
        last = client.submit(TOY, units=1, hold=True).id
    mortal.stop()
    path = mortal.folder / "state" / "journal.db"
    for log in path.parent.glob("journal.db-*"):
        log.unlink()
    path.write_bytes(b"no journal" * 1000)
    mortal.start()
    with mortal.client() as client:
        assert last < client.submit(TOY, units=1).id < last + 2000
    (aside,) = path.parent.glob("*.unreadable-*")
    assert aside.read_bytes() == b"no journal" * 1000
    assert aside.name in mortal.log.read_text()


def test_a_file_job_that_gets_on_goes_on_after_any_number_of_kills_where_it_was_on_disk(
    mortal: Daemon, tmp_path: Path
) -> None:
    x = np.random.default_rng(7).standard_normal((1000, 4))
    np.save(tmp_path / "x.npy", x)
    target = tmp_path / "y.npy"
    with mortal.client() as client:
        inputs, slow = tmp_path / "x.npy", {"units": 1000, "milliseconds": 20}
        job = client.submit("toys:Slow", inputs, out=target, **slow)
        for _ in range(2):
            until(lambda: rows(mortal)[job.id]["state"] == "running")
            with mortal.client() as other:  # its job is on disk, and so that this one has started
                other.cancel(other.submit(TOY, units=1, hold=True).id)
            restart(mortal)
        until(lambda: list(tmp_path.glob(".*.parts")))
        restart(mortal)
        job.result()
        (note,) = (note for note in job.report.notes if note.startswith("continued: "))
    assert 0 < int(note.split()[1]) < 1000
    np.testing.assert_array_equal(np.load(target), 2 * x + 1)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["x.npy", "y.npy"]


@pytest.mark.parametrize("is_changed", [False, True])
def test_a_mapped_function_goes_on_after_a_kill_unless_its_input_has_changed(
    mortal: Daemon, tmp_path: Path, is_changed: bool
) -> None:
    x, target = np.arange(1000.0), tmp_path / "y.npy"
    np.save(tmp_path / "x.npy", x)
    (tmp_path / "filters.py").write_text(SLOW_FILTER)
    function = ("--function", "filters:doubled", "--arg", "seconds=0.02")
    files = ("--input", "x.npy", "--output", str(target))
    words = ("submit", "map", *function, *files, "--no-wait", "--json")
    number = mortal.call(*words, cwd=tmp_path).json["job"]
    until(lambda: list(tmp_path.glob(".*.parts")))
    mortal.kill()
    if is_changed:
        np.save(tmp_path / "x.npy", x := x + 1)
    mortal.start()
    assert mortal.call("wait", str(number)).code == 0
    np.testing.assert_array_equal(np.load(target), 2 * x)
    notes = mortal.call("show", str(number), "--json").json["notes"]
    assert any(note.startswith("continued: ") for note in notes) != is_changed
