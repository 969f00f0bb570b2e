"""A client of a real server; its engine only doubles its input."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import daemon_harness
import pytest
from daemon_harness import Harness

from hetsched.client.client import Client


@pytest.fixture
def harness(tmp_path: Path) -> Iterator[Harness]:
    with daemon_harness.daemon(tmp_path) as harness:
        yield harness


@pytest.fixture
def client(harness: Harness) -> Iterator[Client]:
    with Client(harness.folder, timeout=60) as client:
        yield client
