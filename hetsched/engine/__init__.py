"""The engine, run by the daemon or `Local`: jobs, device processes, planning, learning."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hetsched.lazy import lazy_names

if TYPE_CHECKING:
    from hetsched.engine.engine import Engine

__all__ = ["Engine"]

__getattr__ = lazy_names(__name__, {"Engine": "engine"})
