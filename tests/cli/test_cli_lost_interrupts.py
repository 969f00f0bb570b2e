"""Ctrl-C that arrives where Python ignores exceptions."""

from __future__ import annotations

import subprocess
import sys

LOST = """
import os, signal, sys, time, weakref
from hetsched.cli import interrupts

class Thing: pass

def interrupt():
    os.kill(os.getpid(), signal.SIGINT)

signal.signal(signal.SIGINT, signal.default_int_handler)
interrupts.install_handler()
try:
    for _ in range(3):
        thing = Thing()
        weakref.finalize(thing, interrupt)
        del thing
    time.sleep(60)
except KeyboardInterrupt:
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    sys.exit(130)
"""
OTHER = """
from hetsched.cli import interrupts

class Thing:
    def __del__(self):
        raise ValueError("of a destructor")

interrupts.install_handler()
Thing()
"""


def run(program: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=False
    )


def test_a_ctrl_c_that_a_destructor_ignores_is_repeated() -> None:
    end = run(LOST)

    assert (end.returncode, end.stderr) == (130, "")


def test_other_errors_of_destructors_are_reported_as_ever() -> None:
    assert "ValueError: of a destructor" in run(OTHER).stderr
