"""Turns of the threads of the daemon at the interpreter."""

from __future__ import annotations

import sys

import pytest

from hetsched.daemon.limits.interpreter_turns import TURN_SECONDS, short_turns


def test_turns_are_short_while_the_daemon_runs() -> None:
    before = sys.getswitchinterval()
    with pytest.raises(ZeroDivisionError), short_turns():
        assert sys.getswitchinterval() == pytest.approx(TURN_SECONDS)
        assert 1 / 0

    assert sys.getswitchinterval() == before > TURN_SECONDS
