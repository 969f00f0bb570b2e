"""The flags that every workload has, read into one record."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import typer

from hetsched.errors import UsageError
from hetsched.job import FileOut, FileRef, JobSpec
from hetsched.units import MOST, parse_size

Json = Annotated[bool, typer.Option("--json", help="Print one JSON object on one line.")]
ConfigName = Annotated[
    str | None,
    typer.Option(
        "--config", metavar="NAME|FILE", help="A shipped configuration, or a .toml file."
    ),
]
JobNumber = Annotated[
    int, typer.Argument(metavar="ID", help="The job's number.", min=0, max=MOST - 1)
]
JobNumbers = Annotated[
    list[int], typer.Argument(metavar="ID...", help="Job numbers.", min=0, max=MOST - 1)
]
Force = Annotated[bool, typer.Option("--force", help="Replace output files that exist.")]
MemoryLimit = Annotated[
    str | None, typer.Option(metavar="SIZE", help="Device memory to use, as 256MiB.")
]
Seed = Annotated[
    int,
    typer.Option(metavar="N", min=0, max=MOST - 1, show_default=False, help="Of generated data."),
]


@dataclass(frozen=True)
class Request:
    """What was asked for, besides the workload's own parameters.

    `inputs`, `outputs`: array name ("" for the only one) -> absolute path.
    """

    inputs: dict[str, str]
    outputs: dict[str, str]
    force: bool
    devices: tuple[str, ...]
    memory_limit: int | None
    verify: bool
    seed: int
    priority: int

    def spec(self, workload: str, params: Mapping[str, Any]) -> JobSpec:
        """What the daemon is sent."""
        return JobSpec(
            workload=workload,
            params=dict(params),
            inputs={name: FileRef(path) for name, path in self.inputs.items()},
            outputs={name: FileOut(path, self.force) for name, path in self.outputs.items()},
            devices=self.devices,
            memory_limit=self.memory_limit,
            verify=self.verify,
            seed=self.seed,
            priority=self.priority,
        )


def gather(
    input: Annotated[
        list[str] | None,
        typer.Option(metavar="[NAME=]FILE", help="A .npy file; none: data from --seed."),
    ] = None,
    output: Annotated[
        list[str] | None,
        typer.Option(metavar="[NAME=]FILE", help="Where the result goes, as .npy."),
    ] = None,
    force: Force = False,
    verify: Annotated[bool, typer.Option("--verify", help="Check every unit.")] = False,
    devices: Annotated[
        str | None, typer.Option(metavar="A,B", help="Names and groups: cpu, cpu0, gpu, gpu0.")
    ] = None,
    memory_limit: MemoryLimit = None,
    seed: Seed = 0,
    priority: Annotated[
        int,
        typer.Option(
            metavar="N",
            min=-20,
            max=19,
            show_default=False,
            help="-20 to 19; not used yet: first come, first served.",
        ),
    ] = 0,
) -> Request:
    """The request behind the flags.

    Raises
    ------
    UsageError
    """
    return Request(
        inputs=files("--input", input),
        outputs=files("--output", output),
        force=force,
        devices=_devices(devices),
        memory_limit=_memory(memory_limit),
        verify=verify,
        seed=seed,
        priority=priority,
    )


def files(flag: str, given: Sequence[str] | None) -> dict[str, str]:
    """Array name ("" for the only one) -> absolute path."""
    files: dict[str, str] = {}
    for text in given or ():
        match = re.match(r"([A-Za-z_]\w*)=", text, re.ASCII)
        name = match[1] if match else ""
        path = text[match.end() :] if match else text
        if not path:
            raise UsageError(f"{flag} {text!r}: needs the name of a file")
        if name in files:
            what = f"{name} twice" if name else "two files without a name"
            raise UsageError(f"{flag}: {what}; give each array one file, as NAME=FILE")
        files[name] = str(Path(path).absolute())
    return files


def _devices(text: str | None) -> tuple[str, ...]:
    if text is None:
        return ()
    names = tuple(part.strip() for part in text.split(","))
    if not all(names):
        raise UsageError(f"--devices {text!r}: needs names with commas between, as cpu,gpu0")
    return names


def _memory(text: str | None) -> int | None:
    if text is None:
        return None
    try:
        size = parse_size(text)
    except UsageError as error:
        raise UsageError(f"--memory-limit: {error}") from None
    if size < 1:
        raise UsageError(f"--memory-limit {text}: must be at least 1 byte; leave it out for all")
    return size
