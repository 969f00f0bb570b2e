"""Calls for which a job of the engine would cost too much: threads share them."""

from __future__ import annotations

import contextvars
import os
import signal
import subprocess
import sys
import threading
from pathlib import Path

import numpy as np
import pytest

import hetsched
from hetsched.functions.session import session

SECONDS = 60.0
"""For another thread to come; it never takes so long."""


@pytest.fixture(autouse=True)
def no_engine() -> None:
    """And no configuration of other tests in this process."""
    session.close()


two_cores = pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="needs two cores")


def engine_threads() -> set[threading.Thread]:
    return {thread for thread in threading.enumerate() if thread.name == "hetsched"}


def two_threads_share_a_call() -> bool:
    """Return whether that took no engine."""
    session.close()
    before = engine_threads()  # of other tests
    threads: set[int] = set()
    is_known, met = False, threading.Condition()

    def sorts(block: np.ndarray) -> np.ndarray:
        if is_known:
            with met:
                threads.add(threading.get_ident())
                met.notify_all()
                assert met.wait_for(lambda: len(threads) > 1, SECONDS)
        return np.sort(block)

    x = np.random.default_rng(0).random((64, 2000))
    hetsched.map(sorts, x)
    is_known = True
    np.testing.assert_array_equal(hetsched.map(sorts, x), np.sort(x))
    return engine_threads() <= before


@two_cores
def test_threads_share_a_short_call_without_the_engine() -> None:
    # More than once, as a busy machine can make a first unit look long
    assert any(two_threads_share_a_call() for _ in range(5))


PROGRAM = """
import atexit, threading, numpy as np, hetsched
x = np.random.default_rng(0).random((64, 2000))
def work():
    assert (hetsched.map(np.sort, x) == np.sort(x)).all()
    print("right", flush=True)
work()
"""


def run(end: str) -> None:
    """Run a program of two calls."""
    command = [sys.executable, "-c", PROGRAM + end]
    ended = subprocess.run(command, check=False, capture_output=True, text=True)
    assert (ended.returncode, ended.stderr, ended.stdout) == (0, "", "right\nright\n")


@pytest.mark.parametrize(
    "table",
    ['kind = "cpu"\ncount = 1', 'kind = "emulated"\ncompute = { gap = "10us", unit = "1us" }'],
)
def test_a_configuration_may_have_few_cores_or_none(
    table: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "config.toml").write_text(f"[[device]]\n{table}\n")
    monkeypatch.setenv("HETSCHED_CONFIG", str(tmp_path / "config.toml"))
    run("work()")


@pytest.mark.parametrize("end", ["atexit.register(work)", "threading.Thread(target=work).start()"])
def test_a_short_call_works_while_the_interpreter_ends(end: str) -> None:
    run(end)


def test_all_threads_have_the_callers_context() -> None:
    factor = contextvars.ContextVar("factor", default=1.0)
    factor.set(3.0)
    x = np.random.default_rng(0).random((64, 2000))
    for _ in range(3):
        np.testing.assert_array_equal(
            hetsched.map(lambda block: np.sort(block) * factor.get(), x), np.sort(x) * 3.0
        )


def test_a_wider_dtype_of_later_units_is_no_silent_loss() -> None:
    x = np.repeat([0, 300], 300)
    with pytest.raises(hetsched.DataError, match="uint16, for other units uint8: give dtype"):
        hetsched.map(lambda block: block.astype(np.min_scalar_type(int(block.max()))), x)


def call_ends_at_ctrl_c(number: int) -> bool:
    """Return whether another thread took part, which is in the function when Ctrl-C comes."""
    x = np.random.default_rng(0).random((64, 2000))
    out = np.zeros_like(x)
    is_known, begins, goes_on = False, threading.Event(), threading.Event()
    writers: list[threading.Thread] = []

    def waits(block: np.ndarray, number: int) -> np.ndarray:
        if is_known and threading.current_thread() is threading.main_thread():
            if not begins.wait(SECONDS / 6):  # or it would compute all
                raise KeyboardInterrupt
        elif is_known:
            writers.append(threading.current_thread())
            begins.set()
            if len(writers) == 1:
                signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGINT)
            goes_on.wait(SECONDS)
        return np.sort(block)

    hetsched.map(waits, x, number=number)
    is_known = True
    with pytest.raises(KeyboardInterrupt):
        hetsched.map(waits, x, out=out, number=number)
    before = out.copy()
    goes_on.set()
    for thread in writers:
        thread.join(SECONDS)
    np.testing.assert_array_equal(out, before)
    np.testing.assert_array_equal(hetsched.map(np.sort, x), np.sort(x))
    return begins.is_set()


@two_cores
def test_after_ctrl_c_no_thread_writes_any_more_and_all_serve_the_next_call() -> None:
    # More than once, as above
    assert any(call_ends_at_ctrl_c(number) for number in range(5))
