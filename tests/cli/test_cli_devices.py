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


def test_restrictions_are_in_the_json(harness: Harness, call: Call) -> None:
    record = json.loads(call("devices", "--json").out)

    assert record["restricted"] == {"cpu0": "takes no jobs of kind fft"}


def test_a_running_daemons_own_devices_are_listed(harness: Harness, call: Call) -> None:
    listed = json.loads(call("devices", "--json").out)
    probed = json.loads(call("devices", "--probe", "--json").out)

    assert (listed["config"], listed["devices"]) == ("daemon", probed["devices"])
    assert json.loads(call("devices", "--config", "cpu-only", "--json").out)["config"] != "daemon"


def test_a_probe_needs_a_daemon(call: Call) -> None:
    assert call("devices", "--probe").code == 69


def test_a_probe_is_of_the_daemons_configuration(call: Call) -> None:
    assert "no --config" in call("devices", "--probe", "--config", "cpu-only").error


def test_devices_are_disabled_and_enabled(harness: Harness, call: Call) -> None:
    assert "cpu0: disabled" in call("devices", "--disable", "cpu0").out
    assert "cpu0: disabled" in call("devices").out

    assert "cpu0: disabled" not in call("devices", "--enable", "cpu0", "--probe").out
    assert (harness.engine.disabled, harness.engine.probes) == (set(), 1)


def test_an_unknown_device_is_a_usage_error(harness: Harness, call: Call) -> None:
    ended = call("devices", "--disable", "cpu0,cpu9")

    assert (ended.code, ended.error) == (2, "no device 'cpu9'")


def test_a_switch_is_for_a_daemon(call: Call) -> None:
    assert call("devices", "--disable", "cpu0").code == 69
    assert "--disable is for" in call("devices", "--disable", "a", "--config", "cpu-only").error
