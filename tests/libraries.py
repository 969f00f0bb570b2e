"""Libraries that few tests use: each process of pytest imports all tests, so these come late."""

from __future__ import annotations

import importlib
import importlib.util
from typing import Any

import pytest


class _Late:
    def __init__(self, name: str) -> None:
        self._name = name

    def __getattr__(self, attribute: str) -> Any:
        return getattr(importlib.import_module(self._name), attribute)


def library(name: str) -> Any:
    """The module, imported when it is first used. Without it the module's tests are skipped."""
    if importlib.util.find_spec(name.partition(".")[0]) is None:
        pytest.skip(f"{name} isn't installed", allow_module_level=True)
    return _Late(name)
