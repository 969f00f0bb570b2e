"""The options of iterative jobs as keyword arguments: checks and conversion."""

from __future__ import annotations

import os
from typing import Any

from hetsched.client import validation
from hetsched.errors import UsageError
from hetsched.iteration_options import WARM_UPS
from hetsched.paths import real_path
from hetsched.units import parse_time, quoted


def iteration_fields(
    balance: Any, warm_up: Any, checkpoint: Any, every: Any, resume: Any
) -> dict[str, Any]:
    """Return the fields of a JobSpec by name. Raises UsageError for a wrong type.

    Values are checked by `iteration_options.check_iteration_options`.
    """
    return {
        "balance": validation.text("balance", balance, "the name of a method"),
        "warm_up": _warm_up(warm_up),
        "checkpoint": _path("checkpoint", checkpoint),
        "every": _seconds(every),
        "resume": _path("resume", resume),
    }


def _warm_up(value: Any) -> str:
    """Return the name of a method; "" for None or False, the only method for True."""
    if isinstance(value, bool):
        return WARM_UPS[0] if value else ""
    return "" if value is None else validation.text("warm_up", value, "a name, True or False")


def _path(name: str, value: Any) -> str:
    """Return an absolute path; "" for None."""
    if value is None:
        return ""
    path = os.fspath(value) if isinstance(value, os.PathLike) else value
    text = validation.text(name, path, "the path of a checkpoint")
    if not text or "\0" in text:
        raise UsageError(f"{name}: {quoted(value)} should be the path of a checkpoint")
    return real_path(text)


def _seconds(value: Any) -> float | None:
    if value is None:
        return None
    if isinstance(value, str):
        try:
            return parse_time(value)
        except UsageError as error:
            raise UsageError(f"every: {error}") from None
    if isinstance(value, bool) or not hasattr(value, "__float__"):
        raise UsageError(f'every: {quoted(value)} should be seconds, or a str like "30s"')
    return float(value)
