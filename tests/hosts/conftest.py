"""Hosts as processes on loopback, each with an engine of its own."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from hetsched.hosts.client import ClusterClient
from hetsched.hosts.tcp import TcpHosts

Cluster = tuple[ClusterClient, TcpHosts, list["HostProcess"]]
TOKEN = "only for this test"


class HostProcess:
    """`python -m hetsched.hosts.host`, reached at `address`."""

    def __init__(self, folder: Path, **settings: Any) -> None:
        env = {
            **os.environ,
            "HETSCHED_STATE_DIR": str(folder),
            "HETSCHED_RUNTIME_DIR": str(folder),
        }
        self.process = subprocess.Popen(
            [sys.executable, "-m", "hetsched.hosts.host"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env=env,
        )
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        text = json.dumps({"token": TOKEN, "embedded": True, **settings})
        self.process.stdin.write(text.encode() + b"\n")
        self.process.stdin.flush()
        self.address = ("127.0.0.1", int(self.process.stdout.readline()))

    def signal(self, number: int) -> None:
        self.process.send_signal(number)

    def close(self) -> None:
        assert self.process.stdin is not None
        self.signal(signal.SIGCONT)
        assert self.process.stdout is not None
        self.process.stdin.close()
        self.process.stdout.close()
        try:
            self.process.wait(20)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
            raise


@pytest.fixture
def start_host(tmp_path: Path) -> Iterator[Callable[..., HostProcess]]:
    with ExitStack() as stack:
        started: list[HostProcess] = []

        def start(**settings: Any) -> HostProcess:
            folder = tmp_path / f"host{len(started)}"
            folder.mkdir(mode=0o700)
            host = HostProcess(folder, **settings)
            started.append(host)
            stack.callback(host.close)
            return host

        yield start


@pytest.fixture
def cluster(
    start_host: Callable[..., HostProcess],
) -> Iterator[tuple[ClusterClient, TcpHosts, list[HostProcess]]]:
    """Two hosts and a client; a lost one is noticed after 2 s."""
    hosts = TcpHosts(patience=2.0)
    processes = [start_host() for _ in range(2)]
    for i, process in enumerate(processes):
        hosts.join(f"host{i}", process.address, TOKEN, None)
    with ClusterClient(hosts) as client:
        yield client, hosts, processes
