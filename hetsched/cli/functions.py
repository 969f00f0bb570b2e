"""`map` and `reduce`: a function of the user's in place of a workload, with files as arrays."""

from __future__ import annotations

import ast
import contextlib
import functools
import inspect
import os
import time
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

import msgspec

from hetsched.cli import flags
from hetsched.cli.flags import ConfigName, Force, Json
from hetsched.cli.terminal import answer, note
from hetsched.cli.workloads import JOB_FLAGS, Action, Flag, flags_command, job_spec
from hetsched.errors import CantCreate, DataError, HetschedError, UsageError
from hetsched.job import JobSpec
from hetsched.paths import real_path
from hetsched.units import format_seconds

if TYPE_CHECKING:
    from typer._click import Command

MAX_SHOWN = 2000  # Characters of a reduction's value. Arbitrary
MAP_HELP = "Apply a function to blocks of arrays in files."
REDUCE_HELP = "Combine a function's results of blocks of arrays in files."


def keyword(text: str) -> tuple[str, Any]:
    """Read "sigma=2.5" or "name=text". Raises UsageError."""
    name, separator, value = text.partition("=")
    if not separator or not name.isidentifier():
        raise UsageError(f"{text!r} should be NAME=VALUE, e.g. sigma=2.5")
    try:
        return name, ast.literal_eval(value)
    except (ValueError, SyntaxError, MemoryError, RecursionError, TypeError):
        return name, flags.text(value)


ARGUMENTS = (
    Flag("function", "MODULE:NAME", "The function; the present folder is searched, too."),
    Flag("input", "FILE", "Its arguments, in their order: .npy, .zarr, .h5:dataset, .tif or"
         " raw:DTYPE:SHAPE[:OFFSET]. Repeatable.", flags.path, is_repeated=True),
    Flag("arg", "NAME=VALUE", "Its keyword arguments: Python literals or text. Repeatable.",
         keyword, is_repeated=True),
    Flag("broadcast", "N,N", "Positions of the inputs that each block gets whole.",
         flags.numbers()),
)  # fmt: skip
BLOCKS = (
    Flag("axis", "N", "Axis of the units. [default: 0]", flags.integers(-64, 63)),
    Flag("overlap", "N", "Units by which blocks overlap on either side.",
         flags.integers(0, 2**62)),
    Flag("mode", "NAME", "What is beyond the ends: reflect, mirror, nearest, wrap, constant."),
    Flag("dtype", "DTYPE", "Of the results; default: as the function returns them."),
    Flag("shape", "NxN", "Of the result, if it is to be checked.", flags.numbers()),
)  # fmt: skip
RESUME = Flag("resume", "", "Keep what is complete if it is interrupted, and go on from there.")
COMBINE = Flag("combine", "MODULE:NAME", "Function of two results, as numpy:add.")
OUTPUT = Flag("output", "FILE", "Save the result: .npy, .zarr, .h5:dataset, .tif or .raw."
              " Repeatable.", flags.path, is_repeated=True)  # fmt: skip
DEVICES = (JOB_FLAGS["devices"], JOB_FLAGS["memory_limit"])


def submit_map(*names: str) -> Callable[[Action], Command]:
    """Return what makes `submit map`, with the flags `names` of JOB_FLAGS."""
    options = [*ARGUMENTS, *BLOCKS, *(JOB_FLAGS[name] for name in names)]
    return lambda submit: flags_command("map", MAP_HELP, options, _map_spec, submit)


def _map_spec(given: dict[str, Any], force: bool) -> JobSpec:
    """Return the request for a daemon; the first unit is computed here."""
    function, inputs, arguments = _common(given)
    fields = {name: given.pop(name) for name in tuple(given) if name in JOB_FLAGS}
    shape = given.pop("shape", None)
    files = fields.get("output", ())
    if len(files) > 1 and not any(name for name, _ in files):
        fields["output"] = [(f"y{i}", file) for i, (_, file) in enumerate(files)]
    from hetsched.functions.named import Map, mapped

    with _frames():
        params = mapped(function, inputs, real_path("."), arguments, **given)
    found = Map().arrays(params)[0].file_shape(params.load)
    if params.axis and not files:
        raise UsageError("--axis: results in memory have their units first; give --output")
    if shape not in (None, found):
        raise DataError(f"shape: {shape}, but the result has {found}")
    try:
        values = msgspec.json.decode(msgspec.json.encode(params))
    except TypeError as error:
        raise UsageError(f"--arg: {error}; a job takes numbers, text and lists") from None
    return job_spec("map", values, fields, force)


def run_map(_: Action) -> Command:
    options = [*ARGUMENTS, OUTPUT, *BLOCKS, RESUME, *DEVICES]
    return flags_command("map", MAP_HELP, options, None, _run_map)


def run_reduce(_: Action) -> Command:
    options = [*ARGUMENTS, COMBINE, BLOCKS[0], JOB_FLAGS["devices"]]
    return flags_command("reduce", REDUCE_HELP, options, None, _run_reduce)


def _run_map(
    given: dict[str, Any], force: Force = False, json: Json = False, config: ConfigName = None
) -> None:
    function, inputs, arguments = _common(given)
    files: Sequence[str] = given.pop("output", ())
    given["memory"] = given.pop("memory_limit", None)
    from hetsched.functions.map import map
    from hetsched.functions.outputs import NewFile

    if clash := [file for file in files if os.path.lexists(file) and not force]:
        raise CantCreate(f"{clash[0]}: exists; give another name, or replace it with --force")
    given["out"] = [NewFile(file, force) for file in files] or None
    _, record, text = _called(map, config, function, inputs, arguments, given)
    saved = [f"result: {file}" for file in files] or ["next: --output FILE saves the result"]
    answer(json, "map/1", {**record, "outputs": files}, [f"map {text}", *saved])


def _run_reduce(given: dict[str, Any], json: Json = False, config: ConfigName = None) -> None:
    function, inputs, arguments = _common(given)
    from hetsched.functions.function import find_function
    from hetsched.functions.map import reduce

    if "combine" not in given:
        raise UsageError("--combine: which function of two results? E.g. numpy:add")
    combine = find_function(given.pop("combine"), real_path("."))
    inputs = [combine, *inputs]
    value, record, text = _called(reduce, config, function, inputs, arguments, given)
    plain = value.tolist() if hasattr(value, "tolist") else value
    lines = [f"reduce {text}", f"value: {value!s:.{MAX_SHOWN}}"]
    answer(json, "reduce/1", {**record, "value": plain}, lines)


def _called(
    call: Callable[..., Any],
    config: str | None,
    function: str,
    inputs: Sequence[Any],
    arguments: dict[str, Any],
    options: dict[str, Any],
) -> tuple[Any, dict[str, Any], str]:
    """Call `map` or `reduce` with the function of this name.

    Return the result, and what became of the call (see `hetsched.profile`) as JSON and as text.
    """
    from hetsched.functions.function import find_function
    from hetsched.functions.named import function_error
    from hetsched.functions.session import SPLIT, calls

    if config is not None:
        os.environ["HETSCHED_CONFIG"] = config  # for the engine of this process
    found = find_function(function, real_path("."))
    if arguments.keys() & inspect.signature(call).parameters.keys():  # named as one of its own
        found, arguments = functools.partial(found, **arguments), {}
    began = time.perf_counter()
    with _frames():
        try:
            result = call(found, *inputs, **options, **arguments)
        except HetschedError:
            raise
        except Exception as error:
            if any(each.startswith("hetsched: ") for each in getattr(error, "__notes__", ())):
                raise function_error(function, error) from error
            raise
    seconds = time.perf_counter() - began
    saved = next((row.saved for _, what, row in calls.rows() if what == SPLIT), None)
    how = "on one core: too little work to divide" if saved is None else "divided"
    if saved is not None and saved > 0:
        how += f", {format_seconds(saved)} less than on one core"
    outcome = {"seconds": seconds, "divided": saved is not None, "saved_seconds": saved}
    text = f"{function}: {format_seconds(seconds)}, {how}"
    return result, {"function": function, **outcome}, text


def _common(given: dict[str, Any]) -> tuple[str, list[Any], dict[str, Any]]:
    """Take the function, its inputs and keywords from the values of flags."""
    if "function" not in given:
        raise UsageError("--function: which one? Give MODULE:NAME, e.g. scipy.ndimage:sobel")
    if "input" not in given:
        raise UsageError("--input: which files? Give one for each argument of the function")
    return given.pop("function"), given.pop("input"), dict(given.pop("arg", ()))


@contextlib.contextmanager
def _frames() -> Iterator[None]:
    """Show where in its own code a function has failed."""
    try:
        yield
    except HetschedError as error:
        for line in error.frames.splitlines():
            note(line)
        raise
