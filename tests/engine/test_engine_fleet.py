"""A fleet of real processes: who is waited for, who is killed, and that each comes back."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, cast

import msgspec
import numpy as np
import psutil
import pytest
from device_toys import AffineParams

from hetsched.config import DeadlinesConfig, DeviceConfig
from hetsched.device import DeviceInfo
from hetsched.devices.probe import Probe, ProcessSpec
from hetsched.engine.processes.fleet import Fleet
from hetsched.transport.arena import Arena
from hetsched.transport.device_messages import Prepare, StoredArray
from hetsched.transport.loop import Loop

TESTS = Path(__file__).parent.parent
PATIENCE = 60.0
KINDS = {"cpu0": "hetsched.devices.cpu", "cpu1": "hetsched.devices.cpu", "deaf0": "deaf_device"}


def spec(name: str) -> ProcessSpec:
    return ProcessSpec(
        package=KINDS[name],
        device=DeviceInfo(name=name, kind="cpu", identity="test"),
        config=DeviceConfig(kind="cpu"),
        forks=name.startswith("cpu"),
    )


class FleetBench:
    """A fleet with these devices, on the loop of this thread; `seen` is what it has reported."""

    def __init__(self, *devices: str) -> None:
        self.loop = Loop()
        self.arena = Arena(1 << 20)
        self.seen: list[tuple[str, Any]] = []
        self.fails = False
        probe = Probe(tuple(map(spec, devices)))
        self.fleet = Fleet(probe, self.loop, DeadlinesConfig(), self.arena)
        self.fleet.listener = cast(Any, self)
        self.fleet.start()

    def on_message(self, device: str, message: Any) -> None:
        if self.fails:
            raise ZeroDivisionError("a bug")
        self.seen.append((device, message))

    def on_lost(self, device: str, reason: str) -> None:
        self.seen.append((device, reason))

    def on_ready(self, device: str) -> None:
        self.seen.append((device, "ready"))

    def on_memory(self, device: str, has_changed: bool, is_released: bool) -> None:
        """Only the state of processes counts here."""

    def wait_for(self, condition: Callable[[], bool]) -> None:
        """Run the loop until `condition` is true."""
        late = self.loop.call_later(PATIENCE, self.loop.stop)
        while not condition():
            assert not self.loop.time() > late.when(), self.seen
            self.loop.call_later(0.01, self.loop.stop)
            self.loop.run_forever()
        late.cancel()

    def wait_until_ready(self, *devices: str) -> None:
        self.wait_for(lambda: self.fleet.ready() >= set(devices))

    def prepare(self, device: str) -> None:
        """Prepare a job, which the process answers."""
        segment = self.arena.allocate(4096)
        self.fleet.attach(device, segment.id, segment.fd, segment.nbytes, "segment")
        arrays = [
            StoredArray(
                array=name,
                key=segment.id,
                shape=(4, 4),
                dtype=np.dtype("float64").str,
                offset=2048 * (name == "y"),
                output=name == "y",
            )
            for name in "xy"
        ]
        self.fleet.send(
            device,
            Prepare(
                attempt=1,
                workload="device_toys:Affine",
                params=msgspec.json.encode(AffineParams(4)),
                variant="numpy",
                arrays=tuple(arrays),
                chunk=4,
            ),
        )

    def close(self) -> None:
        self.fleet.close()
        self.arena.close()
        self.loop.close()


MakeBench = Callable[..., FleetBench]


@pytest.fixture
def make_bench(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[MakeBench]:
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(map(str, (TESTS, TESTS / "devices"))))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.syspath_prepend(TESTS / "devices")
    benches: list[FleetBench] = []

    def make(*devices: str) -> FleetBench:
        benches.append(FleetBench(*devices))
        return benches[-1]

    yield make
    for bench in benches:
        bench.close()


def test_processes_come_back_without_their_template(make_bench: MakeBench) -> None:
    bench = make_bench("cpu0", "cpu1")
    bench.wait_until_ready("cpu0", "cpu1")
    bench.seen.clear()

    psutil.Process(bench.fleet.pids()["cpu0"]).parent().kill()
    bench.wait_for(lambda: {("cpu0", "ready"), ("cpu1", "ready")} <= set(bench.seen))


def test_a_stopped_process_gives_no_sign_of_life(make_bench: MakeBench) -> None:
    bench = make_bench("cpu0")
    bench.wait_until_ready("cpu0")

    os.kill(bench.fleet.pids()["cpu0"], signal.SIGSTOP)
    since = time.monotonic()
    bench.prepare("cpu0")
    bench.wait_for(lambda: bench.fleet.silent_seconds("cpu0", since) > 0.5)

    bench.fleet.kill_process_of("cpu0", "silent")
    bench.wait_until_ready("cpu0")


def test_an_error_in_handling_a_message_costs_the_process_not_the_wait(
    make_bench: MakeBench,
) -> None:
    bench = make_bench("cpu0")
    bench.wait_until_ready("cpu0")

    bench.fails = True
    bench.prepare("cpu0")
    bench.wait_for(lambda: len(bench.seen) >= 2)

    assert bench.seen[1] == ("cpu0", "a message can't be handled: a bug")
    bench.wait_until_ready("cpu0")


def test_another_thread_may_kill_them_all(make_bench: MakeBench) -> None:
    bench = make_bench("cpu0", "cpu1")
    bench.wait_until_ready("cpu0", "cpu1")

    thread = threading.Thread(target=bench.fleet.kill)
    thread.start()
    thread.join()

    bench.wait_for(lambda: not bench.fleet.pids())
