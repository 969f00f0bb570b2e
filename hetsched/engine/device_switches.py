"""Devices that the user has disabled: jobs don't use them."""

from __future__ import annotations

from collections.abc import Sequence

from hetsched.engine.context import EngineContext
from hetsched.errors import UsageError
from hetsched.units import quoted

DISABLED = "disabled (`hetsched devices --enable NAME`)"


def switch_devices(context: EngineContext, enable: Sequence[str], disable: Sequence[str]) -> None:
    """Change which devices are disabled."""
    names = [info.name for info in context.fleet.infos]
    for name in (*enable, *disable):
        if name not in names:
            raise UsageError(f"no device {quoted(name)}; devices here: {', '.join(names)}")
    context.disabled.difference_update(enable)
    context.disabled.update(disable)
    context.planning.plans.clear()  # their plans may have them


def disabled_devices(context: EngineContext) -> dict[str, str]:
    """Return disabled device -> what to say about it."""
    return dict.fromkeys(sorted(context.disabled), DISABLED)
