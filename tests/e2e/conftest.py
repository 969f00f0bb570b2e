"""An engine on real cores, for all tests that don't end its processes."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from served import CORES, PLUG_INS

import hetsched
from hetsched.config import parse


@pytest.fixture(scope="module")
def plug_ins() -> Iterator[None]:
    """Device processes find these tests' plug-ins, and compile nothing for so little work."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", f"{PLUG_INS}:{Path(__file__).parent}")
        patch.setenv("NUMBA_DISABLE_JIT", "1")
        yield


@pytest.fixture(scope="module")
def local(plug_ins: None) -> Iterator[hetsched.Local]:
    with hetsched.Local(parse(CORES, "test"), learn=False) as local:
        yield local
