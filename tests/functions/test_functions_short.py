"""Calls for which a job of the engine would cost too much: threads share them."""

from __future__ import annotations

import os
import threading

import numpy as np
import pytest

import hetsched
from hetsched.functions.session import session

SECONDS = 60.0
"""For another thread to come; it never takes so long."""


@pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="needs two cores")
def test_threads_share_a_short_call_without_the_engine() -> None:
    session.close()
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
    assert not [thread for thread in threading.enumerate() if thread.name == "hetsched"]


def test_an_interrupted_call_leaves_the_threads_to_the_next_one() -> None:
    x = np.random.default_rng(0).random((64, 2000))
    is_known = False

    def interrupts(block: np.ndarray) -> np.ndarray:
        if is_known and threading.current_thread() is threading.main_thread():
            raise KeyboardInterrupt
        return np.sort(block)

    hetsched.map(interrupts, x)
    is_known = True
    with pytest.raises(KeyboardInterrupt):
        hetsched.map(interrupts, x)
    np.testing.assert_array_equal(hetsched.map(np.sort, x), np.sort(x))
