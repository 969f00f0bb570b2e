"""The daemon stops in stages, leaves nothing behind, and only one runs in a place."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import psutil
import pytest
from served import SLOW, Daemon, Gate, Place, computes, refused, says, serving, until

LONG = '[[device]]\nkind = "emulated"\ncompute = { unit = "600s" }\n'
TOY = "toys:Toy"
INTERRUPTED_START = (
    "Fatal Python error: init",
    "Could not import runpy module",
    "python: failed to set __main__.__loader__",
    "Traceback",
)
"""What the interpreter says first when Ctrl-C ends its start."""


@pytest.fixture
def slow() -> Iterator[Daemon]:
    with serving(SLOW) as daemon:
        yield daemon


def test_a_first_signal_stops_at_a_chunks_end(slow: Daemon) -> None:
    with slow.client(reconnect=0) as client:
        x = client.empty((5000, 8, 8))
        x[...] = 1
        jobs = [client.submit("fft", x) for _ in range(20)]  # all get their last replies
        computes(jobs[0])
        assert slow.stop() == 0
        for job in jobs:
            with refused(75):
                job.result(60)
    assert not {"control.sock", "session.sock"} & set(os.listdir(slow.folder / "run"))


def test_a_second_signal_does_not_wait_for_the_chunk() -> None:
    with serving(LONG) as daemon, daemon.client(reconnect=0) as client:
        computes(client.submit("fft", batch="4x8x8"))
        daemon.process.send_signal(signal.SIGINT)
        until(lambda: "no new jobs" in daemon.log.read_text())
        assert daemon.stop(signal.SIGTERM) == 0


def test_a_chunk_that_never_ends_is_killed_at_the_deadline() -> None:
    with serving(LONG + '[deadlines]\nstop = "1s"\n') as daemon, daemon.client() as client:
        computes(client.submit("fft", batch="4x8x8"))
        assert daemon.stop(signal.SIGHUP) == 0


def test_sigquit_ends_everything_at_once() -> None:
    with serving(LONG) as daemon, daemon.client(reconnect=0) as client:
        computes(client.submit("fft", batch="4x8x8"))
        assert daemon.stop(signal.SIGQUIT) == -signal.SIGQUIT
        daemon.config.write_text(SLOW)
        daemon.start()
        with daemon.client() as later:
            assert later.job(1).result(60).shape == (4, 8, 8)


def test_a_draining_daemon_takes_no_jobs_until_that_is_undone(
    slow: Daemon,
) -> None:
    with slow.client() as client:
        held = client.submit("fft", batch="1x8x8", hold=True)
        assert client.drain().is_draining
        with refused(75, "hetsched drain --undo"):
            client.submit("fft", batch="1x8x8")
        assert not client.drain(undo=True).is_draining
        client.release(held.id)
        assert client.submit("fft", batch="1x8x8").result(60).shape == (1, 8, 8)
        job = client.submit("fft", batch="20x8x8", out=slow.folder / "y.npy")
        assert slow.call("drain", "--stop", "--wait").code == 0
        assert slow.process.wait(60) == 0
    assert (slow.folder / "y.npy").exists(), job
    assert "stopped" in slow.log.read_text()


@pytest.mark.parametrize("options", [{"units": 0}, {"units": 1, "hold": True}])
def test_drain_stops_after_a_last_job_that_is_refused_or_on_hold(
    slow: Daemon, gate: Gate, options: dict[str, Any]
) -> None:
    with slow.client(reconnect=0) as client, ThreadPoolExecutor() as threads:
        answer = threads.submit(client.submit, "toys:Hesitant", gate=os.fspath(gate), **options)
        until(gate.pids)
        assert slow.call("drain", "--stop").code == 0
        gate.open()
        assert (answer.exception(60) is None) == (options["units"] > 0)
        assert slow.process.wait(60) == 0


def test_a_second_daemon_is_refused_with_the_pid_of_the_first(daemon: Daemon) -> None:
    ended = daemon.call("serve")
    assert (ended.code, len(ended.err.splitlines())) == (78, 1)
    assert f"pid {daemon.process.pid}" in ended.error


def test_a_path_too_long_for_a_socket_is_refused(tmp_path: Path) -> None:
    place = Place(tmp_path)
    place.environment["HETSCHED_RUNTIME_DIR"] = str(tmp_path / ("r" * 120))
    for command in ("serve", "status"):
        ended = place.call(command)
        assert (ended.code, "107" in ended.error) == (78, True)


@pytest.mark.parametrize(
    ("folder", "mode", "way_out"),
    [("run", 0o755, "chmod 700"), ("state", 0o777, "chmod go-w"), ("state", 0o720, "chmod go-w")],
)
def test_a_folder_that_is_open_to_others_is_refused(
    tmp_path: Path, folder: str, mode: int, way_out: str
) -> None:
    (tmp_path / folder).mkdir()
    (tmp_path / folder).chmod(mode)
    ended = Place(tmp_path).call("serve")
    assert (ended.code, f"{way_out} {tmp_path / folder}" in ended.error) == (78, True)


def test_a_state_folder_that_cannot_be_is_refused(tmp_path: Path) -> None:
    place = Place(tmp_path)
    place.environment["HETSCHED_STATE_DIR"] = "/proc/none"
    assert "/proc/none" in place.call("serve").error


def test_stop_waits_for_the_end_of_the_daemon(slow: Daemon) -> None:
    with slow.client(reconnect=0) as client:
        computes(client.submit("fft", batch="5000x8x8"))
        assert f"stopped the daemon, pid {slow.process.pid}" in slow.call("stop").out
        assert slow.process.wait(60) == 0
    assert slow.call("stop").code == 69


def test_nohup_is_respected() -> None:
    with serving(prefix=("nohup",)) as daemon, daemon.client() as client:
        daemon.process.send_signal(signal.SIGHUP)
        assert client.ping().pid == daemon.process.pid
        assert client.submit("fft", batch="1x8x8").result(60).shape == (1, 8, 8)
        assert "after their current chunks" in daemon.call("drain", "--now").out
        assert daemon.process.wait(60) == 0


@pytest.mark.parametrize("tenths", [0, 2, 6])
def test_any_moment_is_good_for_ctrl_c(tmp_path: Path, tenths: int) -> None:
    place, output = Place(tmp_path, SLOW), tmp_path / "y.npy"
    words = ("run", "fft", "--batch", "5000x8x8", "--output", str(output))
    with place.started(*words) as process:
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(0.05 + tenths / 10)
        children = psutil.Process(process.pid).children(recursive=True)
        process.send_signal(signal.SIGINT)
        try:
            _, err = process.communicate(timeout=20)
        except subprocess.TimeoutExpired:
            process.send_signal(signal.SIGINT)
            _, err = process.communicate(timeout=60)
            # Only before our code has begun can the interpreter, which says so, ignore one.
            assert err.startswith(("Exception ignored in", "Failed checking if argv[0] is"))
    # Before that it is also the interpreter that ends, by the signal or in its own start.
    assert process.returncode in (130, -signal.SIGINT) or err.startswith(INTERRUPTED_START)
    assert psutil.wait_procs(children, 60)[1] == []
    assert not output.exists()


def test_a_ctrl_c_that_an_import_makes_another_error_of_is_one(tmp_path: Path) -> None:
    (tmp_path / "slow_plug_in.py").write_text(
        "import os, signal\n"
        "class Attribute:\n"
        "    def __set_name__(self, owner, name): os.kill(os.getpid(), signal.SIGINT)\n"
        "class Workload:\n"
        "    attribute = Attribute()\n"
    )
    place = Place(tmp_path)
    place.environment["PYTHONPATH"] = str(tmp_path)
    with place.started("run", "slow_plug_in:Workload", "--help") as process:
        _, err = process.communicate(timeout=60)
    assert (process.returncode, err) == (130, "error: interrupted\n")


def test_ctrl_c_of_run_cancels_and_leaves_nothing(tmp_path: Path) -> None:
    place = Place(tmp_path, SLOW)
    words = ("run", "fft", "--batch", "5000x8x8", "--output", str(tmp_path / "y.npy"))
    with place.started(*words) as process:
        says(process, "running 1")
        before = set(tmp_path.iterdir())
        process.send_signal(signal.SIGINT)
        _, err = process.communicate(timeout=60)
    assert process.returncode == 130
    assert "cancelled" in err.splitlines()[-1]
    assert {path.name for path in tmp_path.iterdir()} <= {"config.toml", "cache", "state", "run"}
    assert not (tmp_path / "y.npy").exists(), before


def test_a_second_ctrl_c_of_run_does_not_wait_for_the_chunk(tmp_path: Path, gate: Gate) -> None:
    with Place(tmp_path).started("run", TOY, "--units", "4", "--gate", str(gate.path)) as process:
        until(gate.pids)
        process.send_signal(signal.SIGINT)
        says(process, "Ctrl-C again")
        process.send_signal(signal.SIGINT)
        assert process.wait(60) == 130


def test_ctrl_c_of_submit_detaches_and_a_second_one_cancels(daemon: Daemon, gate: Gate) -> None:
    words = ("submit", TOY, "--units", "4", "--gate", str(gate.path))
    with daemon.started(*words) as process:
        number = says(process, "running").split()[1]
        process.send_signal(signal.SIGINT)
        said = says(process, "continues")
        process.send_signal(signal.SIGINT)
        _, err = process.communicate(timeout=60)
    gate.open()
    assert f"hetsched cancel {number}" in said
    assert (process.returncode, "was cancelled" in err) == (130, True)
    assert daemon.call("wait", number).code == 130


def test_a_job_goes_on_after_its_submit_was_interrupted(daemon: Daemon, gate: Gate) -> None:
    with daemon.started("submit", TOY, "--units", "4", "--gate", str(gate.path)) as process:
        number = says(process, "running").split()[1]
        process.send_signal(signal.SIGINT)
        assert process.wait(60) == 130
    gate.open()
    assert daemon.call("wait", number).code == 0
