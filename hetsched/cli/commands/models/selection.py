"""Which of the models that are known a command is about."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any

import typer

from hetsched import workload as workloads
from hetsched.cli.app import nearest
from hetsched.cli.commands.models.labels import short
from hetsched.errors import UsageError

Device = Annotated[
    str | None, typer.Option(metavar="NAME", help="Of this device or group only: cpu0, cpu.")
]
Workload = Annotated[str, typer.Argument(metavar="WORKLOAD", help="Its models.")]
AnyWorkload = Annotated[str | None, typer.Argument(metavar="[WORKLOAD]", help="Only of this one.")]


def check_workload(word: str, models: Sequence[Any]) -> None:
    """Raises UsageError unless something is known of `word`, or it is installed."""
    there = {one.workload for one in models}
    if word not in there and ":" not in word:
        installed = workloads.names()
        if word not in installed:
            hint = nearest(word, sorted(there.union(installed)))
            raise UsageError(f"no workload {word!r}{hint}")


def chosen(models: Sequence[Any], workload: str | None, device: str | None) -> list[Any]:
    """Those of `workload` and of `device` (None: any).

    Raises
    ------
    UsageError
        Something is known, but nothing of such a device.
    """
    mine = [one for one in models if workload in (None, one.workload)]
    if device is None or not mine:
        return mine
    found = [one for one in mine if is_called(one.device, device)]
    if not found:
        there = list(dict.fromkeys(short(one.device) for one in mine))
        raise UsageError(f"no model of a device {device!r}{nearest(device, there)}")
    return found


def is_called(device: str, word: str) -> bool:
    """Whether `word` is the name of a model's device, or of its group, or all that is known."""
    name = short(device)
    return word in (device, name, name.rstrip("0123456789"))
