"""A call that was interrupted goes on where it was, and only if it is the same call."""

from __future__ import annotations

import errno
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from libraries import library

import hetsched
from hetsched import CantCreate, DataError, IOFailure, UsageError
from hetsched.functions.outputs import NewFile

for name in ("h5py", "tifffile", "zarr"):
    library(name)

pytestmark = [
    pytest.mark.usefixtures("engine"),
    pytest.mark.parametrize("engine", ["cores"], indirect=True, scope="module"),
]

UNITS, LAST = 40, 30
PIECE, MAX_THREADS = 4, 4
"""Units that a thread computes at once, and threads that do."""
SCRIPT = f"""
import numpy as np, os, sys, threading
import hetsched

def doubled(block, factor=2):
    with open("log", "a") as log:
        log.writelines(f"{{unit}}\\n" for unit in block[:, 0].astype(int))
    if {LAST} in block[:, 0] and (os.path.exists("broken") or os.path.exists("killed")):
        for _ in range(500):  # until others have computed what is complete
            with open("log") as log:
                if len(log.readlines()) > {LAST}:
                    break
            threading.Event().wait(0.01)
    if os.path.exists("broken") and {LAST} in block[:, 0]:
        raise ZeroDivisionError
    if os.path.exists("theirs") and {LAST} in block[:, 0]:
        os.rename("theirs", "y.zarr" if os.path.isdir("theirs") else "y.npy")
    if os.path.exists("killed") and {LAST} in block[:, 0]:
        os.abort()
    return factor * block

X = np.repeat(np.arange({UNITS}.0)[:, None], 2**15, axis=1)
"""


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def module() -> dict[str, Any]:
    names: dict[str, Any] = {"__name__": "a_script"}
    exec(SCRIPT, names)
    return names


def interrupted(out: str) -> set[int]:
    """Fail in the middle; return the units that were complete."""
    Path("broken").touch()
    script = module()
    with pytest.raises(ZeroDivisionError):
        hetsched.map(script["doubled"], script["X"], out=out, resume=True)
    Path("broken").unlink()
    Path("log").unlink()
    return noted()


def record() -> Path:
    """Of what is complete."""
    (found,) = Path().glob(".*.parts")
    return found


def noted() -> set[int]:
    lines = record().read_text().splitlines()[1:]
    ranges = [map(int, line.split()) for line in lines if not line.startswith("synced")]
    return {unit for first, end in ranges for unit in range(first, end)}


def computed(log: str = "log") -> list[int]:
    return sorted(map(int, Path(log).read_text().split()))


def read(out: str) -> np.ndarray:
    if out.endswith(".raw"):
        return np.fromfile(out).reshape(UNITS, -1)
    return np.asarray(hetsched.map(np.copy, out))


@pytest.mark.parametrize("out", ["y.npy", "y.raw", "y.zarr", "y.h5", "y.tif"])
def test_only_what_is_missing_is_computed(folder: Path, out: str) -> None:
    done, script = interrupted(out), module()
    assert done and LAST not in done
    hetsched.map(script["doubled"], script["X"], out=out, resume=True)

    assert computed() == sorted({*range(UNITS)} - done)
    np.testing.assert_array_equal(read(out), 2 * script["X"])
    assert {path.name for path in folder.iterdir()} == {"log", out}


@pytest.mark.parametrize("out", ["y.npy", "y.zarr"])
def test_after_the_end_of_the_process_too(folder: Path, out: str) -> None:
    Path("killed").touch()
    call = f"hetsched.map(doubled, X, out={out!r}, resume=True)"
    command = [sys.executable, "-c", f"{SCRIPT}\n{call}"]
    assert subprocess.run(command, check=False, timeout=120).returncode == -signal.SIGABRT
    begun, done = {*computed()}, noted()
    assert done < begun and len(begun - done) <= PIECE * MAX_THREADS
    for name in ("killed", "log"):
        Path(name).unlink()
    subprocess.run(command, check=True, timeout=120)

    assert computed() == sorted({*range(UNITS)} - done)
    np.testing.assert_array_equal(read(out), 2 * module()["X"])


@pytest.mark.parametrize("out", ["y.npy", "y.zarr"])
def test_a_name_that_another_process_took_costs_nothing(folder: Path, out: str) -> None:
    script, theirs = module(), Path("theirs")
    theirs.touch() if out == "y.npy" else theirs.mkdir()
    with pytest.raises(CantCreate, match="meanwhile"):
        hetsched.map(script["doubled"], script["X"], out=out, resume=True)
    Path(out).rename(theirs)
    Path("log").unlink()
    theirs.unlink() if out == "y.npy" else theirs.rmdir()
    hetsched.map(script["doubled"], script["X"], out=out, resume=True)

    assert not Path("log").exists()
    np.testing.assert_array_equal(read(out), 2 * script["X"])
    assert [path.name for path in folder.iterdir()] == [out]


def test_a_sync_that_fails_costs_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(fd: int) -> None:
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    script = module()
    Path("y.npy").touch()
    with monkeypatch.context() as context:
        context.setattr(os, "fsync", fail)
        with pytest.raises(IOFailure, match=r"y\.npy: Input/output error"):
            hetsched.map(script["doubled"], script["X"], out=NewFile("y.npy", True), resume=True)
    Path("log").unlink()
    hetsched.map(script["doubled"], script["X"], out=NewFile("y.npy", True), resume=True)

    assert not Path("log").exists()
    np.testing.assert_array_equal(np.load("y.npy"), 2 * script["X"])


@pytest.mark.parametrize("when", ["before", "after"])
def test_a_store_survives_the_end_of_the_process_while_it_gets_its_name(
    folder: Path, when: str
) -> None:
    call = "hetsched.map(doubled, X, out='y.zarr', resume=True)"
    end = "os.rename = lambda *names: (%s, os._exit(9))"
    end %= "real(*names)" if when == "after" else "0"
    command = [sys.executable, "-c", f"{SCRIPT}\nreal = os.rename\n{end}\n{call}"]
    assert subprocess.run(command, check=False, timeout=120).returncode == 9
    assert len(noted()) == UNITS
    Path("log").unlink()
    if when == "after":
        np.testing.assert_array_equal(read("y.zarr"), 2 * module()["X"])
        Path("y.zarr").rename("z.zarr")
    command = [sys.executable, "-c", f"{SCRIPT}\n{call}"]
    subprocess.run(command, check=True, timeout=120)

    assert Path("log").exists() == (when == "after")
    np.testing.assert_array_equal(read("y.zarr"), 2 * module()["X"])
    assert not list(folder.glob(".*"))


def test_a_file_that_can_not_be_mapped_is_named_and_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    class Full(np.memmap):
        def __new__(cls, *arguments: Any, **named: Any) -> Full:
            raise OSError(errno.ENOMEM, os.strerror(errno.ENOMEM))

    done, script = interrupted("y.npy"), module()
    with monkeypatch.context() as context:
        context.setattr(np, "memmap", Full)
        with pytest.raises(IOFailure, match=r"y\.npy: Cannot allocate memory"):
            hetsched.map(script["doubled"], script["X"], out="y.npy", resume=True)
    hetsched.map(script["doubled"], script["X"], out="y.npy", resume=True)
    assert computed() == sorted({*range(UNITS)} - done)


LOCKED = """
import os, signal, time

def doubled(block):
    with open(os.environ["LOG"], "a") as log:
        log.writelines(f"{unit}\\n" for unit in block[:, 0].astype(int))
    if "KILLED" in os.environ and (block >= 470).any():
        os.kill(int(os.environ["KILLED"]), signal.SIGKILL)
    for _ in block:
        end = time.thread_time() + 5e-3
        while time.thread_time() < end:
            pass
    return 2 * block
"""
CALL = """
import os, sys
import numpy as np
if sys.argv[1:]:
    os.environ["KILLED"] = str(os.getpid())
import hetsched, locked
x = np.repeat(np.arange(500.0)[:, None], 2**13, axis=1)
hetsched.map(locked.doubled, x, out="y.npy", resume=True)
print(hetsched.profile())
"""
SEGMENT = 400
"""Units that two processes compute in a second at most: what is noted at once."""


def test_what_processes_compute_is_noted_each_second(folder: Path) -> None:
    Path("config.toml").write_text('[[device]]\nkind = "cpu"\ncount = 2\n')
    Path("locked.py").write_text(LOCKED)
    env = {**os.environ, "PYTHONPATH": ".", "HETSCHED_CONFIG": "config.toml", "LOG": "first"}
    command = [sys.executable, "-c", CALL]
    ended = subprocess.run([*command, "kill"], env=env, check=False, timeout=120)
    assert ended.returncode == -signal.SIGKILL
    begun, done = {*computed("first")}, noted()
    subprocess.run(command, env={**env, "LOG": "second"}, check=True, timeout=120)

    assert done < begun and len(begun - done) <= SEGMENT
    assert computed("second") == sorted({*range(500)} - done)
    assert (np.load("y.npy") == 2 * np.arange(500.0)[:, None]).all()


def changed_code(script: dict[str, Any]) -> None:
    exec(SCRIPT.replace("return factor", "return 1 * factor"), script)


def changed_input(script: dict[str, Any]) -> None:
    script["X"][0, 0] = 0.5


def changed_argument(script: dict[str, Any]) -> None:
    script["arguments"] = {"factor": 3}


def changed_machine(script: dict[str, Any]) -> None:
    """After a power cut counts only what was written to disk."""
    boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    record().write_text(record().read_text().replace(boot, boot[::-1]))


@pytest.mark.parametrize(
    "change", [changed_code, changed_input, changed_argument, changed_machine]
)
def test_another_call_starts_anew(change: Any) -> None:
    interrupted("y.npy")
    script = module()
    change(script)
    keywords = script.get("arguments", {})
    hetsched.map(script["doubled"], script["X"], out="y.npy", resume=True, **keywords)

    assert len(computed()) == UNITS
    expected = script["X"] * keywords.get("factor", 2)
    np.testing.assert_array_equal(np.load("y.npy"), expected)


def test_a_mistaken_call_loses_nothing() -> None:
    done, script = interrupted("y.npy"), module()
    with pytest.raises(TypeError, match="fact"):
        hetsched.map(script["doubled"], script["X"], out="y.npy", resume=True, fact=3)
    hetsched.map(script["doubled"], script["X"], out="y.npy", resume=True)
    assert computed() == sorted({*range(UNITS)} - done)


def test_without_resume_the_rest_of_another_call_is_replaced(folder: Path) -> None:
    interrupted("y.npy")
    script = module()
    hetsched.map(script["doubled"], script["X"], out="y.npy")
    assert len(computed()) == UNITS
    assert {path.name for path in folder.iterdir()} == {"log", "y.npy"}


def test_files_count_by_their_times_and_broken_records_not_at_all(folder: Path) -> None:
    script = module()
    np.save("x.npy", script["X"])
    for damage in (b"", b"{}\n", b"\xff\xfe", b'{"call": 3}\n1 2\n'):
        Path("broken").touch()
        with pytest.raises(ZeroDivisionError):
            hetsched.map(script["doubled"], "x.npy", out="y.npy", resume=True)
        Path("broken").unlink()
        Path("log").unlink()
        record().write_bytes(damage)
        hetsched.map(script["doubled"], "x.npy", out="y.npy", resume=True)
        assert len(computed()) == UNITS
        Path("y.npy").unlink()
        os.utime("x.npy", ns=(1, 1))


@pytest.mark.parametrize(
    ("keywords", "error", "said"),
    [
        ({}, UsageError, "resume: out should be the path of a new file"),
        ({"out": np.empty(3)}, UsageError, "resume: out should be the path of a new file"),
        ({"out": "y.npy", "key": memoryview(b"")}, UsageError, "resume: key: an object of "),
        ({"out": "y.npy", "cluster": "tcp://none:1"}, UsageError, "resume: a call over the hosts"),
        ({"out": "y.csv"}, DataError, "must end with"),
    ],
)
def test_what_can_not_be_resumed(keywords: Any, error: type[Exception], said: str) -> None:
    with pytest.raises(error, match=said):
        hetsched.map(lambda block, **keywords: block, np.ones(3), resume=True, **keywords)


def test_two_calls_do_not_write_one_file() -> None:
    def nested(block: np.ndarray) -> np.ndarray:
        if block[0, 0]:
            hetsched.map(np.negative, np.ones(3), out="y.npy")
        return block

    with pytest.raises(CantCreate, match="another process or call is writing it"):
        hetsched.map(nested, module()["X"], out="y.npy", resume=True)
