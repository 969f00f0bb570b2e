"""Functions that hold the interpreter's lock are called in processes, if these can import them."""

from __future__ import annotations

import importlib
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import hetsched
from hetsched.functions.session import session

MODULE = """
import os, time
import numpy as np
import hetsched

HOME = {pid}

def slow(block, by=1.0):
    return np.array([busy() + value * by for value in block.tolist()])

def busy():
    end = time.thread_time() + 1.5e-3
    while time.thread_time() < end:
        pass
    return 0

def process(block, by=1.0):
    slow(block)
    return np.full(block.shape, os.getpid())

def differences(block):
    return np.array([busy() + value for value in np.gradient(block).tolist()])

@hetsched.divisible
def decorated(block):
    return process(block)

NUMBERS = np.linspace(0.0, 1.0, 400_000)

def lets_others_run(block):
    for _ in block:
        np.sin(NUMBERS)
    return np.full(block.shape, os.getpid())

def both(x, w, *, names):
    return slow(x) + w.sum(), np.full((len(x), len(names)), 7, "int16")

def fails(block):
    if (block >= 400).any():
        raise ZeroDivisionError("late")
    return slow(block)

def narrower(block):
    return slow(block).reshape(-1, 1)[:, : 1 - (block[0] > 0)]

def ends(block):
    if os.getpid() != HOME:
        os._exit(3)
    return slow(block)

def divides(block):
    return hetsched.map(slow, block)
"""


@pytest.fixture(scope="module")
def slow(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """The module above, which other processes can import."""
    folder: Path = tmp_path_factory.mktemp("processes")
    (folder / "slow_functions.py").write_text(MODULE.replace("{pid}", str(os.getpid())))
    (folder / "config.toml").write_text('[[device]]\nkind = "cpu"\ncount = 2\n')
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("HETSCHED_CONFIG", str(folder / "config.toml"))
        patch.setenv("HETSCHED_STATE_DIR", str(folder))
        patch.syspath_prepend(str(folder))
        session.close()
        yield importlib.import_module("slow_functions")
        session.close()


X = np.arange(500.0)
ATTEMPTS = 20
"""On a busy machine it isn't always seen that two threads are no faster than one."""


def processes(call: Callable[[float], np.ndarray]) -> set[int]:
    """Return the processes that compute `call`, a new kind of call for each number."""
    for attempt in range(ATTEMPTS):
        found = set(np.unique(call(attempt + 0.5)).astype(int)) - {os.getpid()}
        if found:
            return found
    return set()


@pytest.mark.stress
@pytest.mark.skipif(
    not Path("/proc/self/schedstat").exists(), reason="Linux doesn't say who waits for a core"
)
def test_a_busy_core_is_not_taken_for_the_lock(slow: Any) -> None:
    core = min(os.sched_getaffinity(0))
    code = f"import os; os.sched_setaffinity(0, [{core}])\nwhile True: pass"
    programs = [subprocess.Popen([sys.executable, "-c", code]) for _ in range(3)]
    try:
        # A new kind of call each time: on a machine as busy as in tests one may be taken for it.
        found = (hetsched.map(slow.lets_others_run, X[skipped:]) for skipped in range(3))
        assert any(set(np.unique(pids)) == {os.getpid()} for pids in found)
    finally:
        for program in programs:
            program.kill()
            program.wait()


def test_they_are_called_in_a_process_for_each_core(slow: Any) -> None:
    decorated = slow.decorated
    assert len(processes(lambda by: decorated(X[int(by) :]))) == 2


def test_results_are_those_of_the_function(slow: Any) -> None:
    np.testing.assert_array_equal(hetsched.map(slow.slow, X, by=3.0), 3 * X)
    total, sevens = hetsched.map(slow.both, X, np.ones(4), broadcast=1, names=("a", "b"))
    np.testing.assert_array_equal(total, X + 4)
    assert (sevens == 7).all()
    assert sevens.dtype == np.int16
    smooth = hetsched.map(slow.differences, X**2, overlap=1, dtype="float32")
    np.testing.assert_allclose(smooth[1:-1], 2 * X[1:-1], rtol=1e-6)
    np.testing.assert_array_equal(hetsched.map(slow.divides, X), X)


def test_what_they_raise_is_raised_as_it_was_with_the_units(slow: Any) -> None:
    with pytest.raises(ZeroDivisionError, match="late") as raised:
        hetsched.map(slow.fails, X)
    assert "slow_functions:fails, units" in raised.value.__notes__[0]
    assert raised.traceback[-1].name == "fails"
    with pytest.raises(hetsched.DataError, match="narrower returned an array of shape"):
        hetsched.map(slow.narrower, X)


def test_the_end_of_a_process_is_an_error_and_the_next_call_works(slow: Any) -> None:
    for _ in range(ATTEMPTS):
        try:
            hetsched.map(slow.ends, X)  # in threads, if the machine is busy
        except hetsched.JobFailed as error:
            assert "its process died" in str(error)
            assert error.__notes__ == ["hetsched: slow_functions:ends, in processes of its own"]
            break
    np.testing.assert_array_equal(hetsched.map(slow.slow, X, by=4.0), 4 * X)


def test_others_stay_in_this_process_and_the_profile_says_why(slow: Any) -> None:
    functions: dict[str, tuple[Callable[..., Any], dict[str, Any]]] = {
        "they can't import it as": (lambda block, by: slow.process(block), {}),
        "its keywords aren't plain": (slow.process, {"by": np.ones(())}),
    }
    for reason, (function, keywords) in functions.items():
        for attempt in range(ATTEMPTS):
            found = hetsched.map(function, X, **{"by": attempt, **keywords})
            assert set(np.unique(found)) == {os.getpid()}
            if reason in hetsched.profile():
                break
        assert reason in hetsched.profile()
