"""Hosts as processes on loopback, each with an engine of its own."""

from __future__ import annotations

import functools
import itertools
import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from hetsched.hosts.client import ClusterClient
from hetsched.hosts.tcp import TcpHosts

Cluster = tuple[ClusterClient, TcpHosts, list["HostProcess"]]
TOKEN = "only for this test"
LBM = Path(__file__).parents[2] / "examples" / "lbm"


class HostProcess:
    """`python -m hetsched.hosts.host`, reached at `address`; it has one core, or `all_cores`."""

    def __init__(self, folder: Path, all_cores: bool = False) -> None:
        folder.mkdir(mode=0o700, exist_ok=True)
        config = folder / "one-core.toml"
        config.write_text('[[device]]\nkind = "cpu"\ncount = 1\n')
        places = {"HETSCHED_STATE_DIR": str(folder), "HETSCHED_RUNTIME_DIR": str(folder)}
        places["HETSCHED_CONFIG"] = "" if all_cores else str(config)
        places["PYTHONPATH"] = str(LBM)  # a plug-in that hosts import where they are told
        self.process = subprocess.Popen(
            [sys.executable, "-m", "hetsched.hosts.host"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env={**os.environ, **places},
        )
        assert self.process.stdin is not None
        self.process.stdin.write(json.dumps({"token": TOKEN}).encode() + b"\n")
        self.process.stdin.flush()

    @functools.cached_property
    def address(self) -> tuple[str, int]:
        assert self.process.stdout is not None
        return "127.0.0.1", int(self.process.stdout.readline())

    def signal(self, number: int) -> None:
        self.process.send_signal(number)

    def close(self) -> None:
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.signal(signal.SIGCONT)
        self.process.stdin.close()
        self.process.stdout.close()
        try:
            self.process.wait(20)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
            raise


Starter = Callable[[], HostProcess]


@pytest.fixture
def start_host(tmp_path: Path) -> Iterator[Starter]:
    with ExitStack() as stack:
        numbers = itertools.count()

        def start() -> HostProcess:
            host = HostProcess(tmp_path / f"host{next(numbers)}")
            stack.callback(host.close)
            return host

        yield start


@pytest.fixture(scope="session")
def processes(tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[HostProcess]]:
    folder = tmp_path_factory.mktemp("hosts")
    # More cores in all than the machine has take turns in each step of a grid: one host has them.
    started = [HostProcess(folder / "0", all_cores=True), HostProcess(folder / "1")]
    yield started
    for process in started:
        process.close()


@pytest.fixture
def cluster(processes: list[HostProcess], tmp_path: Path) -> Iterator[Cluster]:
    """Two hosts and a client; a lost one is noticed after 2 s."""
    for i, process in enumerate(processes):
        process.signal(signal.SIGCONT)
        if process.process.poll() is not None:
            process.close()
            processes[i] = HostProcess(tmp_path / str(i))
    hosts = TcpHosts(patience=2.0)
    for i, process in enumerate(processes):
        hosts.join(f"host{i}", process.address, TOKEN, None)
    with ClusterClient(hosts) as client:
        yield client, hosts, processes
