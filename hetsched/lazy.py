"""Packages that import their names when these are first used: most processes need few of them."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable, Mapping
from typing import Any


def lazy_names(package: str, homes: Mapping[str, str], modules: str = "") -> Callable[[str], Any]:
    """Return the `__getattr__` of `package`; `homes`: module -> the names that come from it.

    No name may be that of a submodule, which would take its place once it is imported.
    `modules`: submodules that need no import of their own.
    """
    home_of = {name: home for home, names in homes.items() for name in names.split()}

    def load(name: str) -> Any:
        if name in modules.split():
            return importlib.import_module(f"{package}.{name}")
        if name not in home_of:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        value = getattr(importlib.import_module(f"{package}.{home_of[name]}"), name)
        setattr(sys.modules[package], name, value)
        return value

    return load
