"""A daemon in a thread of the test, and sockets that speak to it without a client."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path

import daemon_harness
import pytest
from daemon_harness import Harness, RawClient


@pytest.fixture
def harness(tmp_path: Path) -> Iterator[Harness]:
    with daemon_harness.daemon(tmp_path) as harness:
        yield harness


@pytest.fixture
def raw(harness: Harness) -> Iterator[RawClient]:
    with contextlib.closing(RawClient(harness)) as client:
        yield client
