"""The flags of a job that concern the queue."""

from __future__ import annotations

import datetime
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated

import typer
from msgspec.structs import asdict

from hetsched.cli.integer_parser import integers
from hetsched.cli.request_flags import checked_flags
from hetsched.cli.time_parser import parse_deadline
from hetsched.errors import UsageError
from hetsched.job import MAX_RETRIES, Dependency, JobSpec, parse_dependency
from hetsched.units import parse_time

Label = Annotated[
    str, typer.Option(metavar="TEXT", show_default=False, help="Text shown in lists of jobs.")
]
Id = Annotated[
    str | None,
    typer.Option(
        metavar="NAME",
        help="Your own name for this submission: repeating it adds no second job.",
    ),
]
After = Annotated[
    list[str] | None,
    typer.Option(
        metavar="ID[:ok|any|fail]",
        help="Run after that job has succeeded (any: ended, fail: failed). Repeatable.",
    ),
]
Retries = Annotated[
    int,
    typer.Option(
        metavar="N",
        parser=integers(0, MAX_RETRIES),
        show_default=False,
        help="Run the job again if it fails, up to N times.",
    ),
]
Timeout = Annotated[
    str | None,
    typer.Option(metavar="TIME", help="Fail if it runs longer, e.g. 10m."),
]
Deadline = Annotated[
    str | None,
    typer.Option(metavar="TIME", help="Fail unless ended by then: 18:30, 2h, 2026-11-23T06:00."),
]
Hold = Annotated[bool, typer.Option("--hold", help="Wait until `hetsched release`.")]


@dataclass(frozen=True)
class QueueFlags:
    """The values of these flags, as given."""

    label: str = ""
    id: str | None = None
    after: Sequence[str] = ()
    retries: int = 0
    timeout: str | None = None
    deadline: str | None = None
    hold: bool = False

    def apply(self, spec: JobSpec) -> JobSpec:
        """Return `spec` with these options.

        Raises
        ------
        UsageError
        """
        if self.id == "":
            raise UsageError("--id is empty: give a name, or omit it")
        options = {
            "label": self.label,
            "id": self.id or "",
            "after": tuple(_dependency(text) for text in self.after),
            "retries": self.retries,
            "timeout": None if self.timeout is None else _timeout(self.timeout),
            "deadline": None if self.deadline is None else parse_deadline(self.deadline, _now()),
            "hold": self.hold,
        }
        return checked_flags(**asdict(spec) | options)


def _now() -> datetime.datetime:
    return datetime.datetime.now().astimezone()


def _dependency(text: str) -> Dependency:
    try:
        return parse_dependency(text)
    except UsageError as error:
        raise UsageError(f"--{error}") from None


def _timeout(text: str) -> float:
    try:
        return parse_time(text)
    except UsageError as error:
        raise UsageError(f"--timeout: {error}") from None
