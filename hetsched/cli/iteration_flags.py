"""The flags of a job that only iterative workloads have."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

import typer

from hetsched.errors import UsageError
from hetsched.job import BALANCE_METHODS, WARM_UPS
from hetsched.paths import real_path
from hetsched.units import closest_hint, parse_time, quoted


@dataclass(frozen=True)
class IterationFlags:
    """The values of these flags; paths are absolute."""

    balance: str = "auto"
    warm_up: str = ""
    checkpoint: str = ""
    every: float | None = None
    resume: str = ""


def iteration_flags(
    balance: Annotated[
        str,
        typer.Option(
            metavar="|".join(BALANCE_METHODS),
            show_default=False,
            help="How rows are shared out while it runs. [default: auto]",
        ),
    ] = "auto",
    warm_up: Annotated[
        str | None,
        typer.Option(metavar="|".join(WARM_UPS), help="Measure all devices before it starts."),
    ] = None,
    checkpoint: Annotated[
        str | None, typer.Option(metavar="FILE", help="Save the state here now and then.")
    ] = None,
    every: Annotated[
        str | None, typer.Option(metavar="TIME", help="Between two checkpoints. [default: 30s]")
    ] = None,
    resume: Annotated[
        str | None, typer.Option(metavar="FILE", help="Continue from this checkpoint.")
    ] = None,
) -> IterationFlags:
    """Make IterationFlags of the flags.

    Raises
    ------
    UsageError
    """
    _check_choice("--balance", balance, BALANCE_METHODS)
    if warm_up is not None:
        _check_choice("--warm-up", warm_up, WARM_UPS)
    return IterationFlags(
        balance=balance,
        warm_up=warm_up or "",
        checkpoint=_path("--checkpoint", checkpoint),
        every=None if every is None else _seconds(every),
        resume=_path("--resume", resume),
    )


def _check_choice(flag: str, value: str, choices: tuple[str, ...]) -> None:
    if value not in choices:
        hint = closest_hint(value, choices)
        raise UsageError(f"{flag} {value}: unknown value {quoted(value)}{hint}")


def _path(flag: str, text: str | None) -> str:
    if text == "":
        raise UsageError(f"{flag}: the file name is missing")
    return "" if text is None else real_path(text)


def _seconds(text: str) -> float:
    try:
        return parse_time(text)
    except UsageError as error:
        raise UsageError(f"--every: {error}") from None
