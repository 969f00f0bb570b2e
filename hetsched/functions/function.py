"""A function of the caller: its name, its twins on GPUs, and what identifies it and its calls.

So no function is called or priced in another one's place, and no call gets another one's results.
Twins are the attributes `cuda` and `opencl`, on arrays of CuPy or of pyopencl; for CUDA also
functions that ask `namespace` for their library, and ufuncs of NumPy.
"""

from __future__ import annotations

import functools
import hashlib
import importlib
import os
import re
import site
import sys
import sysconfig
import threading
import weakref
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from types import BuiltinFunctionType, CellType, CodeType, FunctionType, ModuleType
from typing import Any

import numpy as np

from hetsched.errors import DataError, UsageError, text_of
from hetsched.paths import is_path, split_path
from hetsched.store.formats import stamps
from hetsched.store.stored import is_stored
from hetsched.units import quoted

MAX_ITEMS = 100
"""Of a list that is looked at. Arbitrary."""
_PLACES = (sysconfig.get_path("stdlib"), *site.getsitepackages(), site.getusersitepackages())
INSTALLED = re.compile("|".join(map(re.escape, _PLACES)))
"""Where libraries are, whose functions are as their version says."""


def identity(f: Any, keywords: Mapping[str, Any]) -> str:
    """Return a function's name with a hash of its code and of its keywords: of numbers and text,
    which often determine the time, of arrays' shapes and dtypes, of other objects' types.
    """
    state = hashlib.blake2b(digest_size=8)
    _add(state, f)
    for kind, twin in twins_of(f).items():
        state.update(kind.encode())
        _add(state, twin)
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


def _add(state: Any, f: Any) -> None:
    while isinstance(f, functools.partial):
        for value in (*f.args, *sorted(f.keywords.items())):
            state.update(_description(value).encode(errors="replace"))
        f = f.func
    f = getattr(f, "__wrapped__", f)
    state.update(function_name(f).encode(errors="replace"))
    found = getattr(f, "__code__", None) or getattr(type(f).__call__, "__code__", None)
    for code in _codes(found):
        state.update(code.co_code)
        state.update(repr(code.co_names).encode(errors="replace"))
        for constant in code.co_consts:
            if not isinstance(constant, CodeType):
                state.update(_description(constant).encode(errors="replace"))


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


# ---- of a call


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


def _codes(code: Any) -> Iterable[CodeType]:
    """Yield a function's code, and that of functions within it; nothing if it isn't Python's."""
    if isinstance(code, CodeType):
        yield code
        for constant in code.co_consts:
            yield from _codes(constant)


KINDS = ("cuda", "opencl")
"""Of devices that functions may have twins for."""


class Asked(threading.local):
    is_true = False


asked = Asked()


def namespace(*arrays: Any) -> Any:
    """Return the module of functions for these arrays: numpy, cupy, ... (the array API standard).

    A function that computes with it only runs on CUDA devices, too.

    Raises UsageError for arrays of different libraries, and other objects.
    """
    asked.is_true = True
    modules = {id(found): found for array in arrays if (found := _module(array)) is not None}
    if len(modules) != 1:
        names = ", ".join(type(array).__name__ for array in arrays)
        raise UsageError(f"namespace: {names or 'no arrays'}; give arrays of one library")
    return next(iter(modules.values()))


def _module(array: Any) -> Any:
    """Return the namespace of an array; None: any will do, it is a number."""
    if array is None or isinstance(array, bool | int | float | complex):
        return None
    own = getattr(array, "__array_namespace__", None)
    if own is not None:
        return own()
    if type(array).__module__.partition(".")[0] == "cupy":  # whose arrays may not have it yet
        return sys.modules["cupy"]
    raise UsageError(f"namespace: {quoted(array)} should be an array")


decorated: weakref.WeakKeyDictionary[Callable[..., Any], Callable[..., Any]]
decorated = weakref.WeakKeyDictionary()
"""Function with `divisible` -> the function itself, with its twins."""


def undecorated(f: Any) -> Any:
    return decorated.get(f, f) if isinstance(f, FunctionType) else f


def twins_of(f: Any) -> dict[str, Callable[..., Any]]:
    found = {kind: twin for kind in KINDS if callable(twin := getattr(f, kind, None))}
    if isinstance(f, np.ufunc) and getattr(np, f.__name__, None) is f:  # CuPy has it, too
        found.setdefault("cuda", f)
    return found
