"""A plug-in that is edited while it is loaded: its old code never runs silently."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from served import PLUG_INS, Daemon, refused

import hetsched

PLUG_IN = """
from toys import Toy
from hetsched.workload import Variant

def make(p, chunk, context):
    def kernel(inputs, outputs):
        outputs["y"][...] = {factor} * inputs["x"]
    return kernel

class Edited(Toy):
    name = "edited"

    def variants(self, kind):
        return [Variant("numpy", "1", make)]
"""
X = np.ones((4, 4))


@pytest.fixture
def folder() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="hs-") as folder:
        yield Path(folder)


def edit(folder: Path, factor: int) -> None:
    path = folder / "edited.py"
    path.write_text(PLUG_IN.format(factor=factor))
    os.utime(path, (factor, factor))  # also on a file system with a coarse clock


def test_a_plug_in_that_was_edited_needs_another_daemon(folder: Path) -> None:
    edit(folder, 2)
    daemon = Daemon(folder)
    daemon.environment["PYTHONPATH"] += f":{folder}"
    daemon.start()
    with daemon.client() as client:
        assert (client.submit("edited:Edited", X, units=4).result(60) == 2).all()

        edit(folder, 3)
        with refused(65, "edited.py: has changed since it was loaded; restart the daemon"):
            client.submit("edited:Edited", X, units=4).result(60)
    daemon.stop()

    daemon.start()
    with daemon.client() as client:
        assert (client.submit("edited:Edited", X, units=4).result(60) == 3).all()
    daemon.stop()


def test_so_does_one_that_only_device_processes_have_loaded_again(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After an edit a device process starts again: its code isn't that of the engine."""
    edit(folder, 2)
    monkeypatch.syspath_prepend(str(folder))
    monkeypatch.setenv("PYTHONPATH", f"{PLUG_INS}:{folder}")
    monkeypatch.setenv("XDG_CACHE_HOME", str(folder))
    config = folder / "cores.toml"
    config.write_text('[[device]]\nkind = "cpu"\ncount = 1\nteam = false\n')
    with hetsched.Local(str(config), learn=False) as local:
        assert (local.submit("edited:Edited", X, units=4).result(60) == 2).all()

        edit(folder, 3)
        os.kill(local.pids()["cpu0"], 9)
        with refused(65, "restart the daemon, or the program that uses Local"):
            local.submit("edited:Edited", X, units=4).result(60)
