"""`hetsched devices` and `status` with a daemon whose devices have failed."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from daemon_harness import Harness, daemon

from .conftest import Call

RESTRICTION = "cpu0: takes no jobs of kind fft"


@pytest.fixture
def harness(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Harness]:
    folder = tmp_path / "run"
    folder.mkdir(mode=0o700)
    monkeypatch.setenv("HETSCHED_RUNTIME_DIR", str(folder))
    with daemon(folder) as harness:
        yield harness


@pytest.mark.parametrize("command", ["devices", "status"])
def test_devices_that_take_no_jobs_are_named(harness: Harness, call: Call, command: str) -> None:
    assert RESTRICTION in call(command).out


def test_a_probe_gives_them_another_chance(harness: Harness, call: Call) -> None:
    ended = call("devices", "--probe")

    assert (harness.engine.probes, ended.code) == (1, 0)
    assert "cpu0" in ended.out and RESTRICTION not in ended.out
    assert RESTRICTION not in call("status").out


@pytest.mark.parametrize(
    ("flags", "code", "said"),
    [
        ("--probe", 69, "no daemon"),
        ("--disable cpu0", 69, "no daemon"),
        ("--probe --config cpu-only", 2, "no --config"),
        ("--disable cpu0 --config cpu-only", 2, "--disable is for the daemon"),
    ],
)
def test_changes_are_for_a_daemon(flags: str, code: int, said: str, call: Call) -> None:
    ended = call("devices", *flags.split())
    assert (ended.code, said in ended.error) == (code, True)


def test_a_running_daemons_own_devices_are_listed(harness: Harness, call: Call) -> None:
    listed = json.loads(call("devices", "--json").out)
    probed = json.loads(call("devices", "--probe", "--json").out)

    assert (listed["config"], listed["devices"]) == ("daemon", probed["devices"])
    assert json.loads(call("devices", "--config", "cpu-only", "--json").out)["config"] != "daemon"


def test_devices_are_disabled_and_enabled(harness: Harness, call: Call) -> None:
    assert "cpu0: disabled" in call("devices", "--disable", "cpu0").out
    assert "cpu0: disabled" in call("devices").out

    assert "cpu0: disabled" not in call("devices", "--enable", "cpu0", "--probe").out
    assert (harness.engine.disabled, harness.engine.probes) == (set(), 1)
    unknown = call("devices", "--disable", "cpu0,cpu9")
    assert (unknown.code, unknown.error) == (2, "no device 'cpu9'")
