from __future__ import annotations

import asyncio
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from hetsched.config import DeadlinesConfig, DeviceConfig
from hetsched.device import DeviceInfo
from hetsched.devices.probe import Probe, ProcessSpec
from hetsched.engine.processes.fleet import Fleet
from hetsched.transport.arena import Arena
from hetsched.transport.loop import Loop


def test_a_core_that_is_starting_when_the_others_rest_ends_as_well(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    said: list[str] = []
    loop, arena = Loop(), Arena(1 << 20)
    spec = ProcessSpec(
        package="hetsched.devices.cpu",
        device=DeviceInfo(name="cpu0", kind="cpu", identity="test"),
        config=DeviceConfig(kind="cpu"),
        forks=True,
    )
    fleet = Fleet(Probe((spec,)), loop, DeadlinesConfig(), arena)
    fleet.listener = cast(
        Any,
        SimpleNamespace(
            tell=lambda event: said.append(event.device),
            on_lost=lambda device, why: said.append(why),
        ),
    )

    async def at_rest() -> None:
        fleet.start()
        fleet.rest()
        async with asyncio.timeout(60):
            while said != ["cpu0", "it was idle"] or fleet.pids():
                await asyncio.sleep(0.01)

    loop.run_until_complete(at_rest())
    fleet.close()
    arena.close()
    loop.close()
