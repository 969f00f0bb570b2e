"""Selects the models of a workload and device that a command applies to."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated

import typer

from hetsched import workload as workloads
from hetsched.cli.output.model_labels import short_device
from hetsched.errors import UsageError
from hetsched.units import closest_hint

if TYPE_CHECKING:
    from hetsched.store.model_records import StoredModel

Device = Annotated[
    str | None, typer.Option(metavar="NAME", help="Only this device or group: cpu0, cpu.")
]
WorkloadName = Annotated[str, typer.Argument(metavar="WORKLOAD", help="The models' workload.")]
OptionalWorkload = Annotated[
    str | None, typer.Argument(metavar="[WORKLOAD]", help="Only models of this workload.")
]


def check_workload(name: str, models: Sequence[StoredModel]) -> None:
    """Raise UsageError unless there are models of `name`, or it is installed."""
    measured = {model.workload for model in models}
    if name not in measured and ":" not in name:
        installed = workloads.names()
        if name not in installed:
            hint = closest_hint(name, sorted(measured.union(installed)))
            raise UsageError(f"no workload {name!r}{hint}")


def select(
    models: Sequence[StoredModel], workload: str | None, device: str | None
) -> list[StoredModel]:
    """Return the models of `workload` and of `device` (None: any).

    Raises
    ------
    UsageError
        The workload has models, but none of this device.
    """
    of_workload = [model for model in models if workload in (None, model.workload)]
    if device is None or not of_workload:
        return of_workload
    of_device = [model for model in of_workload if matches_device(model.device, device)]
    if not of_device:
        names = list(dict.fromkeys(short_device(model.device) for model in of_workload))
        raise UsageError(f"no model of a device {device!r}{closest_hint(device, names)}")
    return of_device


def matches_device(device: str, word: str) -> bool:
    """Whether `word` is a model's device, its short name, or its group."""
    name = short_device(device)
    return word in (device, name, name.rstrip("0123456789"))
