"""The flags that every workload has, read into one record."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Annotated, Any

import typer

from hetsched.cli.integer_parser import integers
from hetsched.cli.iteration_flags import IterationFlags
from hetsched.errors import UsageError
from hetsched.job import FileOut, FileRef, JobSpec, checked
from hetsched.paths import real_path
from hetsched.units import NUMBER_LIMIT, parse_size

ParamValue = str | bool
"""Value of a workload's own flag: text, parsed by the workload, or the state of a switch."""

Json = Annotated[bool, typer.Option("--json", help="Print one JSON object on one line.")]
ConfigName = Annotated[
    str | None,
    typer.Option("--config", metavar="NAME|FILE", help="A shipped configuration or a .toml file."),
]
JobNumber = Annotated[
    int, typer.Argument(metavar="ID", help="Job number.", parser=integers(0, NUMBER_LIMIT - 1))
]
JobNumbers = Annotated[
    list[int],
    typer.Argument(metavar="ID...", help="Job numbers.", parser=integers(0, NUMBER_LIMIT - 1)),
]
SomeJobNumbers = Annotated[
    list[int] | None,
    typer.Argument(metavar="[ID...]", help="Job numbers.", parser=integers(0, NUMBER_LIMIT - 1)),
]
Force = Annotated[bool, typer.Option("--force", help="Replace existing output files.")]
Devices = Annotated[
    str | None, typer.Option(metavar="A,B", help="Devices or groups: cpu, cpu0, gpu, gpu0.")
]
MemoryLimit = Annotated[
    str | None, typer.Option(metavar="SIZE", help="Device memory to use, e.g. 256MiB.")
]
Schedule = Annotated[
    str,
    typer.Option(
        metavar="NAME",
        help="Chunks of devices with a link: best, ring, multi-installment, factoring.",
        show_default=False,
    ),
]
Seed = Annotated[
    int,
    typer.Option(
        metavar="N",
        parser=integers(0, NUMBER_LIMIT - 1),
        show_default=False,
        help="Seed of generated data.",
    ),
]
Priority = Annotated[
    int,
    typer.Option(
        metavar="N",
        parser=integers(-20, 19),
        show_default=False,
        help="-20 to 19; larger runs first.",
    ),
]


@dataclass(frozen=True)
class JobOptions:
    """What the user asked for, besides the workload's own parameters.

    `inputs`, `outputs`: array name ("" for the only one) -> absolute path. `iterations`: None for
    a workload without iterations.
    """

    inputs: dict[str, str]
    outputs: dict[str, str]
    force: bool
    devices: tuple[str, ...]
    memory_limit: int | None
    verify: bool
    seed: int
    priority: int
    schedule: str = "best"
    iterations: IterationFlags | None = None

    def spec(self, workload: str, params: Mapping[str, ParamValue]) -> JobSpec:
        """Return the job as the daemon receives it."""
        options = {} if self.iterations is None else asdict(self.iterations)
        return checked_flags(
            workload=workload,
            params=dict(params),
            inputs={name: FileRef(path) for name, path in self.inputs.items()},
            outputs={name: FileOut(path, self.force) for name, path in self.outputs.items()},
            devices=self.devices,
            memory_limit=self.memory_limit,
            verify=self.verify,
            seed=self.seed,
            priority=self.priority,
            schedule=self.schedule,
            **options,
        )


def checked_flags(**fields: Any) -> JobSpec:
    """Make the request of these fields. Raises UsageError that names the flag that is wrong."""
    try:
        return checked(JobSpec, **fields)
    except UsageError as error:
        name, _, problem = str(error).partition(":")
        raise UsageError(f"--{name.replace('_', '-')}:{problem}") from None


def job_options(
    input: Annotated[
        list[str] | None,
        typer.Option(metavar="[NAME=]FILE", help="Input .npy file. [default: generated data]"),
    ] = None,
    output: Annotated[
        list[str] | None,
        typer.Option(metavar="[NAME=]FILE", help="Save the result as .npy."),
    ] = None,
    force: Force = False,
    verify: Annotated[bool, typer.Option("--verify", help="Check every unit.")] = False,
    devices: Devices = None,
    memory_limit: MemoryLimit = None,
    seed: Seed = 0,
    priority: Priority = 0,
    schedule: Schedule = "best",
) -> JobOptions:
    """Make JobOptions of the flags.

    Raises
    ------
    UsageError
    """
    return JobOptions(
        inputs=paths_by_array("--input", input),
        outputs=paths_by_array("--output", output),
        force=force,
        devices=_devices(devices),
        memory_limit=_memory(memory_limit),
        verify=verify,
        seed=seed,
        priority=priority,
        schedule=schedule,
    )


def paths_by_array(flag: str, values: Sequence[str] | None) -> dict[str, str]:
    """Map each array's name ("" for the only one) to an absolute path.

    Raises
    ------
    UsageError
        No file name, or two files for one array.
    """
    paths: dict[str, str] = {}
    for text in values or ():
        match = re.match(r"([A-Za-z_][\w.]*)=", text, re.ASCII)
        name = match[1] if match else ""
        path = text[match.end() :] if match else text
        if not path:
            raise UsageError(f"{flag} {text!r}: the file name is missing")
        if name in paths:
            problem = f"{name} is given twice" if name else "two files have no array name"
            raise UsageError(f"{flag}: {problem}; give each array one file, as NAME=FILE")
        paths[name] = real_path(path)
    return paths


def _devices(text: str | None) -> tuple[str, ...]:
    if text is None:
        return ()
    names = tuple(part.strip() for part in text.split(","))
    if not all(names):
        raise UsageError(f"--devices {text!r}: separate names by single commas, e.g. cpu,gpu0")
    return names


def _memory(text: str | None) -> int | None:
    if text is None:
        return None
    try:
        size = parse_size(text)
    except UsageError as error:
        raise UsageError(f"--memory-limit: {error}") from None
    if size < 1:
        raise UsageError(
            f"--memory-limit {text}: must be at least 1 byte; omit the flag for no limit"
        )
    return size
