"""`hetsched devices`: the devices of a configuration, and which are missing.

A running daemon's own, with those that take no jobs because of failures, unless --config is given.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any

import typer

from hetsched.cli.connect import control
from hetsched.cli.output.terminal import clean, columns, out, out_json
from hetsched.cli.request_flags import ConfigName, Json
from hetsched.config import load
from hetsched.device import DeviceInfo
from hetsched.errors import Unavailable, UsageError
from hetsched.text import MAX_GROUP_ROWS, grouped_rows
from hetsched.units import format_bytes

if TYPE_CHECKING:
    from hetsched.transport.messages import DeviceList

SCHEMA = "hetsched.devices/1"


PROBE_FLAG = typer.Option(
    "--probe", help="Have the daemon look for missing devices and retry failed ones."
)


@dataclass(frozen=True)
class Changes:
    """What the daemon is to do first. `flag`: one that asks for it; "" if there is none."""

    probe: bool
    enable: tuple[str, ...]
    disable: tuple[str, ...]

    @property
    def flag(self) -> str:
        flags = {"--probe": self.probe, "--enable": self.enable, "--disable": self.disable}
        return next((flag for flag, value in flags.items() if value), "")


def _switch(help: str) -> Any:
    """Return the option of a flag with names of devices."""
    return typer.Option(metavar="A,B", help=f"{help} Until the daemon stops.")


def devices(
    config: ConfigName = None,
    probe: Annotated[bool, PROBE_FLAG] = False,
    enable: Annotated[list[str] | None, _switch("Let devices take jobs again.")] = None,
    disable: Annotated[list[str] | None, _switch("Let devices take no more jobs.")] = None,
    json: Json = False,
) -> None:
    """List the daemon's devices, or those of a configuration."""
    changes = Changes(probe, _names(enable), _names(disable))
    if changes.flag and config is not None:
        raise UsageError(
            f"{changes.flag} is for the daemon, which has its own configuration: no --config"
        )
    served = None if config is not None else _served(changes)
    if served is not None:
        _show("daemon", served.devices, served.absent, served.restricted, json)
        return
    settings, source = load(config)
    from hetsched.devices.probe import probe as find_devices

    machine = find_devices(settings)
    infos = [process.device for process in machine.processes]
    _show(source, infos, machine.absent, {}, json)


def _names(values: Sequence[str] | None) -> tuple[str, ...]:
    """Return the names in values such as "cpu0,cpu1"."""
    return tuple(name.strip() for value in values or () for name in value.split(","))


def _served(changes: Changes) -> DeviceList | None:
    """Return the daemon's devices after `changes`; None without a daemon, unless they need it."""
    try:
        with control() as daemon:
            if changes.enable or changes.disable:
                switched = daemon.switch_devices(changes.enable, changes.disable)
                return daemon.device_list(probe=True) if changes.probe else switched
            return daemon.device_list(probe=changes.probe)
    except Unavailable:
        if changes.flag:
            raise
        return None


def _show(
    source: str,
    infos: Sequence[DeviceInfo],
    absent: Mapping[str, str],
    restricted: Mapping[str, str],
    json: bool,
) -> None:
    if json:
        out_json(
            {
                "schema": SCHEMA,
                "config": source,
                "devices": list(infos),
                "absent": absent,
                "restricted": restricted,
            }
        )
        return
    rows = [
        _row(label, members)
        for label, members in grouped_rows(infos, lambda info: info.name, MAX_GROUP_ROWS)
    ]
    for line in columns(
        ("device", "kind", "description", "memory", "cores", "nodes"), rows, left_columns=3
    ):
        out(line)
    for name, reason in absent.items():
        out(clean(f"{name}: not available: {reason}"))
    for name, reason in restricted.items():
        out(clean(f"{name}: {reason}"))


def _row(label: str, members: list[DeviceInfo]) -> tuple[str, ...]:
    first = members[0]
    cores = sorted({core for member in members for core in member.cores})
    memory = "-" if first.memory is None else format_bytes(first.memory)
    nodes = sorted({member.numa_node for member in members if member.numa_node is not None})
    return label, first.kind, first.identity, memory, _ranges(cores), _ranges(nodes)


def _ranges(numbers: list[int]) -> str:
    """Format [0, 1, 2, 5] as "0-2,5"."""
    runs: list[list[int]] = []
    for number in numbers:
        if runs and number == runs[-1][1] + 1:
            runs[-1][1] = number
        else:
            runs.append([number, number])
    return ",".join(f"{a}" if a == b else f"{a}-{b}" for a, b in runs) or "-"
