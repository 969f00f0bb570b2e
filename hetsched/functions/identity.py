"""What identifies a function, so that another one is neither called nor priced in its place."""

from __future__ import annotations

import functools
import hashlib
import importlib
import sys
from collections.abc import Callable, Mapping
from types import CodeType
from typing import Any

from hetsched.errors import DataError, UsageError, text_of
from hetsched.functions.twins import twins_of, undecorated
from hetsched.units import quoted

MAX_DEPTH = 8
"""Of functions within functions that are looked at. Arbitrary."""
MAX_ITEMS = 100
"""Of a list that is looked at. Arbitrary."""


def identity(f: Any, keywords: Mapping[str, Any]) -> str:
    """Return a function's name with a hash of its code and of its keywords: of numbers and text,
    which often determine the time, of arrays' shapes and dtypes, of other objects' types.
    """
    state = hashlib.blake2b(digest_size=8)
    _add(state, f, MAX_DEPTH)
    for kind, twin in twins_of(f).items():
        state.update(kind.encode())
        _add(state, twin, MAX_DEPTH)
    for name in sorted(keywords):
        state.update(f"{name}={_description(keywords[name])}\0".encode(errors="replace"))
    return f"{function_name(f)} {state.hexdigest()}"


def function_name(f: Any) -> str:
    """Return ``module:qualname`` of a function, or what comes near it."""
    while isinstance(f, functools.partial):
        f = f.func
    qualname = getattr(f, "__qualname__", None) or getattr(f, "__name__", None)
    if qualname is None:
        f = type(f)
        qualname = f.__qualname__
    return f"{getattr(f, '__module__', None) or 'builtins'}:{qualname}"[:200]


def find_function(name: str, folder: str = "", is_edited: bool = False) -> Callable[..., Any]:
    """Import ``module:qualname``, from sys.path or `folder`; if its module `is_edited` anew, and
    from `folder` first. Raises UsageError.
    """
    module, _, qualname = name.partition(":")
    if not module or not qualname:
        raise UsageError(f"{quoted(name)} should be module:function, e.g. scipy.ndimage:sobel")
    if folder and (is_edited or folder not in sys.path):
        sys.path.insert(0 if is_edited else len(sys.path), folder)
    try:
        found: Any = importlib.import_module(module)
        if is_edited:
            found = importlib.reload(found)
        for part in qualname.split("."):
            found = getattr(found, part)
    except (Exception, SystemExit) as error:  # importing a module may raise anything
        reason = f"{type(error).__name__}: {text_of(error)}"
        raise UsageError(f"function {quoted(name)} can't be loaded: {reason:.300}") from error
    finally:
        if folder and is_edited:
            sys.path.remove(folder)
    if not callable(found):
        raise UsageError(f"{quoted(name)} is of class {type(found).__name__}, no function")
    return found  # type: ignore[no-any-return]


def current_function(
    name: str, code: str, keywords: Mapping[str, Any], folder: str = ""
) -> Callable[..., Any]:
    """Find the function whose identity is `code`. Raises UsageError, DataError."""
    for is_edited in (False, True):
        function: Callable[..., Any] = undecorated(find_function(name, folder, is_edited))
        if identity(function, keywords) == code:
            return function
    raise DataError(
        f"{name} is another function here than where it was called; check which module is imported"
    )


def _add(state: Any, f: Any, depth: int) -> None:
    if isinstance(f, functools.partial) and depth:
        for value in (*f.args, *sorted(f.keywords.items())):
            state.update(_description(value).encode(errors="replace"))
        _add(state, f.func, depth - 1)
        return
    f = getattr(f, "__wrapped__", f)
    code = getattr(f, "__code__", None) or getattr(type(f).__call__, "__code__", None)
    state.update(function_name(f).encode(errors="replace"))
    if isinstance(code, CodeType):
        _add_code(state, code, depth)


def _add_code(state: Any, code: CodeType, depth: int) -> None:
    state.update(code.co_code)
    state.update(repr(code.co_names).encode(errors="replace"))
    for constant in code.co_consts:
        if not isinstance(constant, CodeType):
            state.update(_description(constant).encode(errors="replace"))
        elif depth:
            _add_code(state, constant, depth - 1)


def _description(value: Any, depth: int = 3) -> str:
    if isinstance(value, int):
        return f"{value:x}"[:1000]  # in decimal, Python refuses many digits
    if value is None or isinstance(value, float | complex | str | bytes):
        return f"{value!r:.1000}"
    if isinstance(value, tuple | list) and len(value) < MAX_ITEMS and depth:
        return f"({','.join(_description(item, depth - 1) for item in value)})"
    if hasattr(value, "shape") and hasattr(value, "dtype"):
        return f"{value.dtype}{value.shape}"
    return function_name(value) if callable(value) else function_name(type(value))
