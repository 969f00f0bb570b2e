"""The workload of functions that hold the interpreter's lock: a process for each core calls them.

A function travels as ``module:qualname``, its keywords as text. Neither is pickled.
"""

from __future__ import annotations

import ast
import functools
import math
import re
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from hetsched.errors import HetschedError, JobFailed, UsageError, plug_in_error
from hetsched.functions.call import Call, together
from hetsched.functions.function import current_function, find_function, function_name, undecorated
from hetsched.functions.session import session
from hetsched.functions.workload import CALL, Function, FunctionParams
from hetsched.workload import Arrays, ArraySpec, Variant

REFERENCE = f"{__name__}:ProcessFunction"
MAX_KEYWORDS = 10_000
"""Characters of keywords as text. Arbitrary."""
PLAIN = (int, float, complex, bool, str, bytes, type(None))
LOCK_SECONDS, LOCK_ROUNDS = 0.01, 3
"""Of a block by which is seen whether a function holds the interpreter's lock, which changes hands
each 5 ms; the fastest of so many counts."""
MAX_GROWTH = 64
"""Of a block on the way to one that takes as long."""
LOCKED = 1.5
"""Times that a block in each of two threads takes longer than one block: 1 or 2."""
MIN_SECONDS = 0.5
"""Of computing for which processes may pay: their start takes some tenths, and data is copied."""
FAILED = re.compile(r", units? (\d+)(?: to (\d+))? of axis ")
"""In the message of a job whose function has raised an error."""


class ProcessParams(FunctionParams, frozen=True, kw_only=True):
    """A kind of call, with all that a process needs to know of the call itself."""

    units: int
    """Of the whole arrays."""
    keywords: str
    positions: tuple[tuple[bool, int], ...]
    axis: int
    overlap: int
    mode: str
    dtype: str | None
    casting: str
    floating_errors: str


def measure_lock(call: Call, done: int, end: int) -> tuple[int, list[float], bool | None]:
    """Compute some units; return the next one, the seconds of a unit as seen, and whether the
    function holds the interpreter's lock: two threads are no faster than one. None: there is too
    little work to see it, or for it to matter.
    """
    units, seconds = call.granule, 0.0
    alone: list[float] = []
    # The first unit alone says little: most of its time may have been the call itself.
    while seconds < LOCK_SECONDS:
        growth = min(max(2.0, LOCK_SECONDS / max(seconds, 1e-6)), MAX_GROWTH) if seconds else 1
        units = math.ceil(units / call.granule * growth) * call.granule
        if done + (1 + 3 * LOCK_ROUNDS) * units >= end:
            return done, alone, None
        seconds = _seconds_in_threads(call, done, units, 1)
        alone.append(seconds / units)
        done += units
    if min(alone) * (end - done) < MIN_SECONDS:
        return done, alone, None
    best = {1: math.inf, 2: math.inf}
    for threads in (1, 2) * LOCK_ROUNDS:
        best[threads] = min(best[threads], _seconds_in_threads(call, done, units, threads))
        done += threads * units
    return done, [*alone, best[1] / units], best[2] > LOCKED * best[1]


def _seconds_in_threads(call: Call, first: int, units: int, count: int) -> float:
    """Compute `units` in this thread, and as many in each of the others of `count`; return the
    seconds of the slowest, without those in which other programs had its core.
    """
    seconds: list[float] = []

    def compute(start: int) -> None:
        begun, delayed = time.perf_counter(), _delayed_seconds()
        call.compute_here(start, start + units)
        seconds.append(time.perf_counter() - begun - (_delayed_seconds() - delayed))

    starts = range(first, first + count * units, units)
    together(call, [functools.partial(compute, start) for start in starts])
    return max(seconds)


def _delayed_seconds() -> float:
    """Return how long this thread was able to run and had no core; 0.0 if Linux doesn't say."""
    try:
        return int(Path("/proc/thread-self/schedstat").read_text().split()[1]) * 1e-9
    except (OSError, IndexError, ValueError):
        return 0.0


def reason_against(call: Call) -> str:
    """Return why a call's function can't be called in other processes; "" if it can."""
    name = function_name(call.f)
    if name.startswith("__main__:"):
        return "it is defined in __main__, which they can't import"
    try:
        found = undecorated(find_function(name))
    except UsageError:  # as of a closure
        found = None
    if found is not call.f:
        return f"they can't import it as {name}"
    if not call.is_in_memory or call.reduction is not None:
        return "reductions and arrays in files and stores stay here"
    is_plain = _is_plain(call.keywords) and np.geterrcall() is None
    if not is_plain or len(repr(call.keywords)) > MAX_KEYWORDS:
        return "its keywords aren't plain numbers and text"
    return ""


def _is_plain(value: Any, depth: int = 5) -> bool:
    if type(value) in PLAIN:
        return not isinstance(value, float | complex) or bool(value - value == 0)
    if type(value) is dict:
        value = [*value.keys(), *value.values()]
    is_list = type(value) in (list, tuple) and depth > 0
    return is_list and all(_is_plain(item, depth - 1) for item in value)


class ProcessFunction(Function):
    """Functions that are imported where they are called."""

    Params = ProcessParams
    in_threads = "no"
    takes_any_layout = False

    def arrays(self, p: FunctionParams) -> Sequence[ArraySpec]:
        assert isinstance(p, ProcessParams)
        specs = super().arrays(p)
        if not p.overlap:
            return specs
        # Each core sees all units, in shared memory: what overlaps needs no copies.
        return [
            ArraySpec(a.name, "resident", (p.units, *a.unit_shape), a.dtype)
            if a.role == "split"
            else a
            for a in specs
        ]

    def speed_key(self, p: FunctionParams) -> str:
        return f"process {super().speed_key(p)}"

    def variants(self, kind: str) -> Sequence[Variant]:
        return (Variant("process", "1", lambda p, *_: _ProcessKernel(p)),) if kind == "cpu" else ()


def process_job(
    call: Call, common: FunctionParams, first: int, end: int
) -> tuple[ProcessParams, dict[str, np.ndarray]]:
    units = slice(None) if call.overlap else slice(first, end)
    arrays = {f"x{i}": x[units] for i, x in enumerate(call.split)}
    arrays |= {f"w{i}": w for i, w in enumerate(call.whole)}
    arrays[CALL] = np.array([first])
    params = ProcessParams(
        **{name: getattr(common, name) for name in FunctionParams.__struct_fields__},
        units=call.load,
        keywords=repr(call.keywords),
        positions=call.positions,
        axis=call.axis,
        overlap=call.overlap,
        mode=call.mode,
        dtype=None if call.dtype is None else call.dtype.name,
        casting=call.casting,
        floating_errors=repr(np.geterr()),
    )
    return params, arrays


def failed_units(error: HetschedError) -> tuple[int, int] | None:
    """Return (first, end) of the units for which a function has raised an error, if it has."""
    found = FAILED.search(str(error)) if isinstance(error, JobFailed) else None
    if found is None:
        return None
    first = int(found[1])
    return first, int(found[2] or first) + 1


class _ProcessKernel:
    """Computes chunks of one call after another, in a process of their own."""

    takes_range = True

    def __init__(self, p: ProcessParams) -> None:
        session.stay_on_this_core()  # the others are those of other processes
        keywords = ast.literal_eval(p.keywords)
        f = current_function(p.function.partition(" ")[0], p.function, keywords)
        self._counts = len(p.split), len(p.whole), len(p.outputs)
        self._call = Call(f, keywords, p.positions, [], [], p.axis, p.overlap, p.mode)
        self._call.dtype = None if p.dtype is None else np.dtype(p.dtype)
        self._call.casting = p.casting
        self._call.context.run(functools.partial(np.seterr, **ast.literal_eval(p.floating_errors)))

    def __call__(self, inputs: Arrays, outputs: Arrays, first: int, count: int) -> None:
        call = self._call
        split, whole, results = self._counts
        call.split = [inputs[f"x{i}"] for i in range(split)]
        call.whole = [inputs[f"w{i}"] for i in range(whole)]
        call.outputs = [outputs[f"y{i}"] for i in range(results)]
        start = int(inputs[CALL][0]) + first
        base = start if call.overlap else 0
        try:
            call.in_context(call.compute, call.split, call.whole, call.outputs, start, count, base)
        except BaseException as error:
            notes = (note for note in getattr(error, "__notes__", ()) if FAILED.search(note))
            where = next(notes, "").removeprefix("hetsched: ")
            text = str(plug_in_error(where, error))
            raise JobFailed(text if where in text else f"{where}: {text}") from error
        finally:
            call.failure = None
            call.split, call.whole, call.outputs = [], [], []
