"""What identifies a call, so that the results of another one aren't taken for its own."""

from __future__ import annotations

import hashlib
import os
import re
import site
import sys
import sysconfig
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from types import BuiltinFunctionType, CellType, CodeType, FunctionType, ModuleType
from typing import Any

import numpy as np

from hetsched.errors import UsageError
from hetsched.functions.files import is_path
from hetsched.functions.identity import function_name
from hetsched.paths import split_path
from hetsched.store.formats import stamps
from hetsched.store.stored import is_stored

_PLACES = (sysconfig.get_path("stdlib"), *site.getsitepackages(), site.getusersitepackages())
INSTALLED = re.compile("|".join(map(re.escape, _PLACES)))
"""Where libraries are, whose functions are as their version says."""


def same_call(f: Any, arrays: Sequence[Any], options: Mapping[str, Any]) -> str:
    """Return a hash of a function's code and of what it names in its module, of the values that it
    keeps and gets, of arrays' contents and of files' path, size and time.

    Raises UsageError for what can't be compared.
    """
    content = _Content()
    try:
        content.add(f, "the function")
        for position, value in enumerate(arrays):
            what = f"array {position}"
            if is_stored(value):
                raise UsageError(f"resume: {what}: give the path of its file")
            content.add(_file(value) if is_path(value) else value, what)
        for name in sorted(options):
            content.add((name, options[name]), name)
    except RecursionError:
        raise UsageError("resume: the function or its arguments are nested too deeply") from None
    return content.state.hexdigest()


def _file(path: str | os.PathLike[str]) -> list[Any]:
    place = split_path(path)
    file = Path(place.file).resolve()
    return [str(file), place.part, *stamps(file)]


class _Content:
    """Hashes values by what they hold, and functions by their code."""

    def __init__(self) -> None:
        self.state = hashlib.blake2b(digest_size=16)
        self._seen: dict[int, tuple[int, Any]] = {}
        """Of each object: its number, and itself, or another one might get its id."""

    def add(self, value: Any, what: str = "") -> None:
        """`what`: the name of what must be comparable; "": its type will do."""
        self._note(f"{type(value).__module__}.{type(value).__qualname__}")
        if isinstance(value, int):
            self._note(hex(value))
        elif value is None or isinstance(value, float | complex | str | bytes):
            self._note(repr(value))
        elif isinstance(value, np.ndarray) and not value.dtype.hasobject:
            self._note(f"{value.dtype.str}{value.shape}")
            self.state.update(np.ascontiguousarray(value).reshape(-1).view(np.uint8).data)
        elif isinstance(value, ModuleType):
            self._note(f"{value.__name__} {getattr(value, '__version__', '')}")
        elif isinstance(value, type | BuiltinFunctionType | np.ufunc):
            self._note(function_name(value))
        elif id(value) in self._seen:
            self._note(str(self._seen[id(value)][0]))
        else:
            self._seen[id(value)] = len(self._seen), value
            self._add_object(value, what)

    def _add_object(self, value: Any, what: str) -> None:
        if isinstance(value, list | tuple):
            self._add_all(value, what)
        elif isinstance(value, dict):
            self._add_all([part for item in value.items() for part in item], what)
        elif isinstance(value, set | frozenset):
            self._add_all(sorted(value, key=repr), what)
        elif isinstance(f := getattr(value, "py_func", value), FunctionType):  # numba's
            self._add_function(f, what)
        else:
            try:  # what pickle would store
                made, *state = value.__reduce_ex__(4)
            except Exception:
                if not what:
                    return
                raise UsageError(
                    f"resume: {what}: an object of {function_name(type(value))} can't be compared"
                    " with that of an earlier call"
                ) from None
            self.add(made, what)
            self._add_all([list(p) if isinstance(p, Iterator) else p for p in state], what)

    def _add_function(self, f: FunctionType, what: str) -> None:
        self._note(function_name(f))
        library = sys.modules.get((f.__module__ or "").partition(".")[0])
        is_installed = INSTALLED.match(getattr(library, "__file__", None) or "")
        if is_installed:
            self.add(library)  # its version stands for its code
            what = ""
        cells = [_contents(cell) for cell in f.__closure__ or ()]
        self._add_all([f.__defaults__, f.__kwdefaults__, *cells, vars(f)], what)
        if is_installed:
            return
        names: set[str] = set()
        for code in _codes(f.__code__):
            self.state.update(code.co_code)
            names.update(code.co_names)
            constants = [each for each in code.co_consts if not isinstance(each, CodeType)]
            self._add_all([code.co_names, *constants], what)
        for name in sorted(names & f.__globals__.keys()):
            self.add(f.__globals__[name])

    def _add_all(self, values: Iterable[Any], what: str) -> None:
        for value in values:
            self.add(value, what)

    def _note(self, text: str) -> None:
        self.state.update(f"{text}\0".encode(errors="replace"))


def _contents(cell: CellType) -> Any:
    try:
        return cell.cell_contents
    except ValueError:  # it has none yet
        return None


def _codes(code: CodeType) -> Iterable[CodeType]:
    yield code
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _codes(constant)
