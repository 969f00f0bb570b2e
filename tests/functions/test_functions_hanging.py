"""Functions that take long, or hang: threads can't be killed."""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

import hetsched
from hetsched import Unavailable
from hetsched.functions.session import session

IMPATIENT = """
[[device]]
kind = "cpu"
count = 2

[deadlines]
chunk = "300ms"
stop = "2s"
"""


@pytest.fixture(autouse=True)
def impatient(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """An engine that gives up soon."""
    config = tmp_path / "config.toml"
    config.write_text(IMPATIENT)
    monkeypatch.setenv("HETSCHED_CONFIG", str(config))
    monkeypatch.setenv("HETSCHED_STATE_DIR", str(tmp_path))
    monkeypatch.setattr(type(session), "overhead", 0.0)
    session.close()
    yield
    session.close()


def test_a_function_may_take_longer_than_the_engine_expects() -> None:
    caller = threading.get_ident()

    def waits(block: np.ndarray) -> np.ndarray:
        if threading.get_ident() != caller:
            time.sleep(1)  # a tool of others, say
        return block

    np.testing.assert_array_equal(hetsched.map(waits, np.arange(9)), np.arange(9))


def test_after_ctrl_c_hanging_threads_compute_again_once_they_return() -> None:
    caller, is_released = threading.get_ident(), threading.Event()
    have_begun = threading.Barrier(2, lambda: signal.pthread_kill(caller, signal.SIGINT))

    def hangs(block: np.ndarray) -> np.ndarray:
        if threading.get_ident() != caller:
            have_begun.wait()
            is_released.wait()
        return block

    x, out = np.arange(9), np.zeros(9, int)
    with pytest.raises(KeyboardInterrupt):
        hetsched.map(hangs, x, out=out)
    computed = out.copy()
    local = session.local()
    with pytest.raises(Unavailable, match=r"call functions; cpu0: stopping takes .* doesn't end"):
        hetsched.map(np.negative, x)

    is_released.set()
    while local.devices()[1]:
        time.sleep(0.01)
    np.testing.assert_array_equal(hetsched.map(np.negative, x), -x)
    np.testing.assert_array_equal(out, computed)
