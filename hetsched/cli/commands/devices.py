"""`hetsched devices`: what there is to compute on, what isn't there and why; no daemon."""

from __future__ import annotations

from hetsched.cli.output.terminal import clean, columns, out, out_json
from hetsched.cli.request_flags import ConfigName, Json
from hetsched.config import load
from hetsched.device import DeviceInfo
from hetsched.text import together
from hetsched.units import format_bytes

SCHEMA = "hetsched.devices/1"
MOST_ROWS = 8
"""Equal cores beyond this many share one row."""


def devices(config: ConfigName = None, json: Json = False) -> None:
    """Show the devices of a configuration."""
    settings, source = load(config)
    from hetsched.devices.probe import probe

    found = probe(settings)
    infos = [info for process in found.processes for info in process.devices]
    if json:
        out_json({"schema": SCHEMA, "config": source, "devices": infos, "absent": found.absent})
        return
    rows = [
        _row(label, members) for label, members in together(infos, lambda i: i.name, MOST_ROWS)
    ]
    for line in columns(("device", "kind", "what", "memory", "cores"), rows, left=3):
        out(line)
    for name, reason in found.absent.items():
        out(clean(f"{name}: not available: {reason}"))


def _row(label: str, members: list[DeviceInfo]) -> tuple[str, ...]:
    first = members[0]
    cores = sorted({core for member in members for core in member.cores})
    memory = "-" if first.memory is None else format_bytes(first.memory)
    return label, first.kind, first.identity, memory, _ranges(cores)


def _ranges(numbers: list[int]) -> str:
    """[0, 1, 2, 5] -> "0-2,5"."""
    runs: list[list[int]] = []
    for number in numbers:
        if runs and number == runs[-1][1] + 1:
            runs[-1][1] = number
        else:
            runs.append([number, number])
    return ",".join(f"{a}" if a == b else f"{a}-{b}" for a, b in runs) or "-"
