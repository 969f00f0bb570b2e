"""A daemon and an embedded engine for all tests of a worker that don't end them."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path

import pytest
from served import CORES, PLUG_INS, Daemon, Gate, serving

import hetsched

SHARED = "[queue]\nsmall_jobs = false\n" + CORES


@pytest.fixture(scope="session")
def daemon() -> Iterator[Daemon]:
    with serving(SHARED) as daemon:
        yield daemon


SMALL = (
    '[arena]\nlimit = "256MiB"\nresults_for = "0s"\nwarm_for = "0s"\n'
    '[limits]\nunread = "1MiB"\n' + CORES
)


@pytest.fixture(scope="session")
def small() -> Iterator[Daemon]:
    """One with little memory, for tests that check that nothing is left."""
    with serving(SMALL) as daemon:
        yield daemon


@pytest.fixture
def client(daemon: Daemon) -> Iterator[hetsched.Client]:
    with daemon.client() as client:
        yield client
        client.cancel_all()


@pytest.fixture(scope="session")
def local(tmp_path_factory: pytest.TempPathFactory) -> Iterator[hetsched.Local]:
    """An engine in this process; its device processes find the plug-ins."""
    path = tmp_path_factory.mktemp("local") / "cores.toml"
    path.write_text(SHARED)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", PLUG_INS)
        patch.setenv("XDG_CACHE_HOME", str(path.parent))
        with hetsched.Local(str(path), learn=False) as local:
            yield local


@pytest.fixture(params=["daemon", "embedded"])
def engine(request: pytest.FixtureRequest) -> hetsched.Client | hetsched.Local:
    """Both ways to run a job: what holds for one holds for the other."""
    found = request.getfixturevalue("client" if request.param == "daemon" else "local")
    assert isinstance(found, hetsched.Client | hetsched.Local)
    return found


@pytest.fixture
def gate(tmp_path: Path) -> Iterator[Gate]:
    with contextlib.closing(Gate(tmp_path / "gate")) as gate:
        yield gate
