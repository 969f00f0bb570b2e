"""Device processes, forked and spawned: they leave nothing behind, and die with their engine."""

from __future__ import annotations

import asyncio
import contextlib
import os
import select
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import msgspec
import pytest
from descriptors import open_descriptors
from spawned_process import CPU, TIMEOUT, Talk

from hetsched.config import DeadlinesConfig
from hetsched.devices.probe import Probe
from hetsched.engine.processes.fleet import Fleet
from hetsched.engine.processes.process import DeviceProcess, Template, TemplateLost
from hetsched.transport.arena import Arena
from hetsched.transport.loop import Loop

Start = Callable[[], Talk]


@pytest.fixture(params=["forked", "spawned"])
def start(
    request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> Iterator[Start]:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    with contextlib.ExitStack() as stack:
        template = None
        if request.param == "forked":
            template = Template()
            stack.callback(template.close)
            assert template.on_readable()
        yield lambda: Talk(CPU, template=template)


def test_a_process_that_was_killed_leaves_nothing_behind(start: Start) -> None:
    fds = open_descriptors()
    talk = start()

    talk.process.kill()
    reason = talk.wait_end()
    talk.release()

    assert reason == "ended by SIGKILL"
    assert open_descriptors() <= fds


def test_forked_processes_end_with_their_template() -> None:
    template = Template()
    assert template.on_readable()
    talk = Talk(CPU, template=template)

    template.kill()

    assert talk.wait_end() in ("ended by SIGKILL", "its template has ended")
    with pytest.raises(TemplateLost):
        DeviceProcess(CPU, template)
    template.close()
    talk.release()


def test_device_processes_die_with_their_engine() -> None:
    code = (
        "import os, select, sys\n"
        "from spawned_process import CPU\n"
        "from hetsched.engine.processes.process import DeviceProcess\n"
        "from hetsched.engine.processes.process import Template\n"
        "template = Template()\n"
        "assert template.on_readable()\n"
        "for process in (DeviceProcess(CPU, template), DeviceProcess(CPU, None)):\n"
        "    while not process.receive(): select.select([process], [], [])\n"
        "    print(process.pid, flush=True)\n"
        "sys.stdin.readline()\n"
    )
    path = os.pathsep.join(filter(None, sys.path))
    engine = subprocess.Popen(
        [sys.executable, "-c", code],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": path},
    )
    assert engine.stdout is not None
    pidfds = [os.pidfd_open(int(engine.stdout.readline())) for _ in range(2)]

    engine.kill()
    engine.communicate()

    for pidfd in pidfds:
        dead, _, _ = select.select([pidfd], [], [], TIMEOUT)
        os.close(pidfd)
        assert dead


def test_a_core_that_is_starting_when_the_others_rest_ends_as_well(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    said: list[str] = []
    loop, arena = Loop(), Arena(1 << 20)
    spec = msgspec.structs.replace(CPU, forks=True)
    fleet = Fleet(Probe((spec,)), loop, DeadlinesConfig(), arena)
    fleet.listener = cast(
        Any, SimpleNamespace(on_ready=said.append, on_lost=lambda device, why: said.append(why))
    )

    async def at_rest() -> None:
        fleet.start()
        fleet.rest()
        async with asyncio.timeout(TIMEOUT):
            while said != ["cpu0", "it was idle"] or fleet.pids():
                await asyncio.sleep(0.01)

    loop.run_until_complete(at_rest())
    fleet.close()
    arena.close()
    loop.close()
