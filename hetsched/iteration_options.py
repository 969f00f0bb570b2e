"""Checks of the options of iterative jobs. Used by the client and by the daemon."""

from __future__ import annotations

from typing import get_args

from hetsched.errors import UsageError
from hetsched.job import BalanceMethod, JobSpec, WarmUp
from hetsched.queue_options import check_seconds
from hetsched.units import MAX_SECONDS, quoted

BALANCE_METHODS: tuple[str, ...] = get_args(BalanceMethod)
WARM_UPS: tuple[str, ...] = tuple(name for name in get_args(WarmUp) if name)
CHECKPOINT_SECONDS = 30.0
"""Between two checkpoints, unless the job says otherwise."""


def check_iteration_options(spec: JobSpec) -> None:
    """Check the values of the options of `spec` that concern iterative jobs.

    Raises
    ------
    UsageError
        With the option, its value and what is allowed.
    """
    _check_choice("balance", spec.balance, BALANCE_METHODS)
    if spec.warm_up:
        _check_choice("warm_up", spec.warm_up, WARM_UPS)
    _check_path("checkpoint", spec.checkpoint)
    _check_path("resume", spec.resume)
    check_seconds("every", spec.every, "seconds", MAX_SECONDS)
    if spec.every is not None and not spec.checkpoint:
        raise UsageError("every: there is no checkpoint; give its file, too")


def iteration_options(spec: JobSpec) -> tuple[str, ...]:
    """Return the names of the options that `spec` sets and that only iterative jobs have."""
    options = {
        "balance": spec.balance != "auto",
        "warm-up": bool(spec.warm_up),
        "checkpoint": bool(spec.checkpoint),
        "every": spec.every is not None,
        "resume": bool(spec.resume),
    }
    return tuple(name for name, is_set in options.items() if is_set)


def check_not_iterative(spec: JobSpec, workload: str) -> None:
    """Raise UsageError if `spec`, of a workload without iterations, has such options."""
    options = iteration_options(spec)
    if options:
        names = ", ".join(f"--{option}" for option in options)
        raise UsageError(
            f"{workload} has no iterations, so {names} can't be used with it: it is computed in"
            " one pass"
        )


def _check_choice(name: str, value: str, choices: tuple[str, ...]) -> None:
    if value not in choices:
        raise UsageError(f"{name}: {quoted(value)} is unknown; choose from: {', '.join(choices)}")


def _check_path(name: str, path: str) -> None:
    if path and not path.startswith("/"):
        raise UsageError(f"{name}: {quoted(path)} should be an absolute path")
