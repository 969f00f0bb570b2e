"""`hetsched devices`: the devices of a configuration, and which are missing; no daemon."""

from __future__ import annotations

from hetsched.cli.output.terminal import clean, columns, out, out_json
from hetsched.cli.request_flags import ConfigName, Json
from hetsched.config import load
from hetsched.device import DeviceInfo
from hetsched.text import MAX_GROUP_ROWS, grouped_rows
from hetsched.units import format_bytes

SCHEMA = "hetsched.devices/1"


def devices(config: ConfigName = None, json: Json = False) -> None:
    """List the devices of a configuration."""
    settings, source = load(config)
    from hetsched.devices.probe import probe

    machine = probe(settings)
    infos = [info for process in machine.processes for info in process.devices]
    if json:
        out_json({"schema": SCHEMA, "config": source, "devices": infos, "absent": machine.absent})
        return
    rows = [
        _row(label, members)
        for label, members in grouped_rows(infos, lambda info: info.name, MAX_GROUP_ROWS)
    ]
    for line in columns(
        ("device", "kind", "description", "memory", "cores"), rows, left_columns=3
    ):
        out(line)
    for name, reason in machine.absent.items():
        out(clean(f"{name}: not available: {reason}"))


def _row(label: str, members: list[DeviceInfo]) -> tuple[str, ...]:
    first = members[0]
    cores = sorted({core for member in members for core in member.cores})
    memory = "-" if first.memory is None else format_bytes(first.memory)
    return label, first.kind, first.identity, memory, _ranges(cores)


def _ranges(numbers: list[int]) -> str:
    """Format [0, 1, 2, 5] as "0-2,5"."""
    runs: list[list[int]] = []
    for number in numbers:
        if runs and number == runs[-1][1] + 1:
            runs[-1][1] = number
        else:
            runs.append([number, number])
    return ",".join(f"{a}" if a == b else f"{a}-{b}" for a, b in runs) or "-"
