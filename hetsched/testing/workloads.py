"""Whether a workload keeps its promises."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import msgspec
import numpy as np

from hetsched.cluster.regions import Box, Held, cut, shape_with, transfers
from hetsched.device_process.fill_and_check import ROUNDINGS, unit_errors
from hetsched.devices.accelerator.on_host import HostRuntime, lending
from hetsched.errors import UsageError
from hetsched.iterations import serial
from hetsched.workload import (
    ArraySpec,
    BaseWorkload,
    Blocks,
    Iterative,
    KernelContext,
    Rows,
    Workload,
)
from hetsched.workload.protocol import KernelArrays, Variant, decode_params

Arrays = dict[str, np.ndarray]

BLOCK_ROUNDINGS = 8
"""For each step, of the largest value: a library may add in another order in a narrower block."""


def check_workload(
    workload: BaseWorkload, params: Any, *, seed: int = 0, runtime: HostRuntime | None = None
) -> None:
    """Check a workload's declaration, data, variants for CPUs and checks of results.

    Each variant computes the whole load, then pieces of other sizes, or rows on several devices;
    each result must be right by the workload's own checks, and a damaged one must be refused.

    Parameters
    ----------
    params : instance of `workload.Params`
        Of a job that takes milliseconds; a load of 5 units or more can be cut in several ways.
    seed : int
        Of the generated data.
    runtime : Runtime, optional
        Of an accelerator, which lends it the host's memory: its variants are checked instead of
        those for CPUs. Not of iterative workloads.

    Raises
    ------
    AssertionError
        A promise is broken.
    """
    load = workload.load(params)
    _expect(isinstance(load, int) and load >= 1, f"load() is {load!r}, not a number of units")
    _check_declaration(workload, params, load)
    _expect(
        workload.can_verify, "no method checks results: residual() and reference(), or errors()"
    )
    inputs = _generated(workload, params, load, seed)
    kind, xp = (runtime.kernels, runtime.xp) if runtime else ("cpu", np)
    variants = workload.variants(kind)
    _expect(len(variants) > 0, f'variants("{kind}") is empty, so nothing can compute')
    with tempfile.TemporaryDirectory(prefix="hs-") as cache:
        for variant in variants:
            if isinstance(workload, Iterative):
                _check_iterations(workload, params, inputs, variant, seed)
            else:
                assert isinstance(workload, Workload), "there are no other kinds"
                context = KernelContext(kind, 1, cache, xp)
                _check_variant(workload, params, inputs, variant, context, seed, runtime)
    if isinstance(workload, Iterative):
        check_blocks(workload, params, inputs)


def _expect(condition: bool, promise: str) -> None:
    if not condition:
        raise AssertionError(promise)


def _check_declaration(workload: BaseWorkload, params: Any, load: int) -> None:
    arrays = workload.arrays(params)
    names = [spec.name for spec in arrays]
    _expect(len(set(names)) == len(names), f"arrays() has a name twice: {', '.join(names)}")
    _expect(any(spec.is_output for spec in arrays), "arrays() has no output")
    inputs = tuple(spec.name for spec in arrays if spec.is_input)
    missing = [name for name in inputs if name not in workload.inputs]
    _expect(not missing, f"inputs lacks {', '.join(missing)}, which arrays() has")
    decoded = decode_params(workload, msgspec.json.encode(params))
    _expect(decoded == params, f"params change on their way as JSON: {params} becomes {decoded}")
    workload.demand(params, "cpu").need([load])  # raises what is wrong
    try:
        resized = workload.resized(params, load + 1)
    except UsageError:
        return  # such jobs can't be measured, which `models measure` says
    _expect(workload.load(resized) == load + 1, f"resized() to {load + 1} units is {resized}")
    same = workload.speed_key(resized) == workload.speed_key(params)
    _expect(same, "speed_key() depends on the load, so that jobs of other sizes teach nothing")


def _generated(workload: BaseWorkload, params: Any, load: int, seed: int) -> Arrays:
    """Return the inputs, whose units mustn't depend on the piece in which they are made."""
    inputs: Arrays = {}
    for spec in workload.arrays(params):
        if not spec.is_input:
            continue
        whole = _poisoned(spec, load)
        workload.generate(params, seed, spec.name, 0, whole)
        if not spec.is_whole:
            for first, stop in _pieces(load, _cuts(load)[-1]):
                piece = _poisoned(spec, stop - first)
                workload.generate(params, seed, spec.name, first, piece)
                where = f"generate() of {spec.name}, units {first} to {stop - 1},"
                _expect(_are_same(piece, whole[first:stop]), f"{where} depends on the piece")
        if np.issubdtype(whole.dtype, np.inexact):  # elsewhere it can't be told
            unwritten = f"generate() of {spec.name} leaves values unwritten"
            _expect(not np.isnan(whole).any(), unwritten)
        inputs[spec.name] = whole
    return inputs


def _cuts(load: int) -> list[list[int]]:
    """Return ways of cutting a load: whole, two unlike pieces, many small ones."""
    third = max(1, load // 3)
    small = [1, 2] * (load // 3 + 1)
    ends = np.minimum(np.cumsum(small), load)
    many = [int(n) for n in np.diff([0, *ends]) if n]
    return [[load], [n for n in (third, load - third) if n], many]


def _pieces(load: int, sizes: Sequence[int]) -> Iterator[tuple[int, int]]:
    first = 0
    for size in sizes:
        yield first, first + size
        first += size


def _poisoned(spec: ArraySpec, count: int) -> np.ndarray:
    array = np.zeros(spec.shape(count), spec.dtype)
    array.reshape(-1).view(np.uint8).fill(0xFF)  # NaN, -1 or the largest number
    return array


def _are_same(array: np.ndarray, other: np.ndarray) -> bool:
    return np.array_equal(array, other, equal_nan=array.dtype.kind in "fc")


def _expect_unchanged(inputs: Arrays, given: Arrays, what: str) -> None:
    for name, array in inputs.items():
        _expect(_are_same(array, given[name]), f"{what}: changes its input {name}")


def _checked_errors(method: str, returned: Any, count: int) -> np.ndarray:
    """Return the errors of `count` units or rows, infinite for NaN."""
    errors = np.asarray(returned)
    is_shaped = errors.shape == (count,) and errors.dtype.kind in "fiu"
    _expect(is_shaped, f"{method} is {errors.dtype} {errors.shape}, not {count} real numbers")
    return np.where(np.isnan(errors), np.inf, errors)


def _damaged(outputs: Mapping[str, np.ndarray], name: str) -> Arrays:
    """Return the outputs with one element of the last unit off by 1 and its largest value."""
    changed = {**outputs, name: outputs[name].copy()}
    flat = changed[name][-1:].reshape(-1)
    largest = np.abs(flat.astype(complex)).max()
    with np.errstate(over="ignore"):
        flat[len(flat) // 2] += np.asarray(largest + 1).astype(flat.dtype)
    return changed


# ---- divisible loads


def _check_variant(
    workload: Workload, params: Any, inputs: Arrays, variant: Variant, context: KernelContext,
    seed: int, runtime: HostRuntime | None,
) -> None:  # fmt: skip
    load = workload.load(params)
    specs = workload.arrays(params)
    for sizes in _cuts(load):
        kernel = variant.make(params, max(sizes), context)
        if runtime:
            kernel = lending(variant.name, runtime, kernel)
        outputs = {
            spec.name: _poisoned(spec, load)
            if workload.writes_all or spec.role == "inout"
            else np.zeros(spec.shape(load), spec.dtype)
            for spec in specs
            if spec.is_output
        }
        given = {name: array.copy() for name, array in inputs.items()}
        for first, stop in _pieces(load, sizes):
            kernel(
                KernelArrays(_part(specs, given, first, stop)),
                KernelArrays(_part(specs, outputs, first, stop)),
            )
        what = f"{variant.name}, in pieces of {', '.join(map(str, sizes[:4]))}"
        _expect_unchanged(inputs, given, what)
        _check_result(workload, params, inputs, outputs, what, seed)


def _part(specs: Sequence[ArraySpec], arrays: Arrays, first: int, stop: int) -> Arrays:
    whole = {spec.name for spec in specs if spec.is_whole}
    return {n: a if n in whole else a[first:stop] for n, a in arrays.items()}


def _check_result(
    workload: Workload, params: Any, inputs: Arrays, outputs: Arrays, what: str, seed: int
) -> None:
    load = workload.load(params)
    specs = workload.arrays(params)
    errors = _residual(workload, params, inputs, outputs, seed)
    worst = int(np.argmax(errors))
    _expect(errors[worst] <= 1, f"{what}: unit {worst} has residual() {errors[worst]:.3g}, not 1")
    tolerance = workload.tolerance(params)
    for unit in sorted({0, load // 2, load - 1}):
        one = _part(specs, inputs, unit, unit + 1)
        scale = workload.scale(params, one, 0) or {}
        for name, reference in workload.reference(params, one, 0).items():
            floor = ROUNDINGS / tolerance
            error = unit_errors(outputs[name][unit], reference, True, floor, scale.get(name, 0.0))
            is_right = error[1] <= tolerance
            _expect(is_right, f"{what}: {name} of unit {unit} is {error[1]:.3g} off reference()")
    for name in outputs:
        found = _residual(workload, params, inputs, _damaged(outputs, name), seed)[load - 1]
        _expect(not found <= 1, f"residual() misses a wrong element of {name}: {found:.3g}")


def _residual(
    workload: Workload, params: Any, inputs: Arrays, outputs: Mapping[str, np.ndarray], seed: int
) -> np.ndarray:
    found = workload.residual(params, inputs, outputs, seed)
    return _checked_errors("residual()", found, workload.load(params))


# ---- iterations


def _check_iterations(
    workload: Iterative, params: Any, inputs: Arrays, variant: Variant, seed: int
) -> None:
    load, granule = workload.load(params), workload.granule(params)
    middle = min(load, max(1, load // granule // 3) * granule)
    fixed = middle, load - middle
    moved = fixed if fixed[1] % granule else fixed[::-1]
    splits: dict[str, serial.Split] = {
        "on one device": lambda iteration: (load,),
        "on two devices": lambda iteration: fixed,
        "on two devices whose rows move": lambda iteration: fixed if iteration % 2 else moved,
    }
    for where, split in splits.items():
        what = f"{variant.name}, {where}"
        kept = {name: array.copy() for name, array in inputs.items()}
        result = serial.run(workload, params, kept, split, variant=variant.name, save_after=1)
        _expect_unchanged(inputs, kept, what)
        if workload.must_converge(params):
            _expect(result.converged, f"{what}: doesn't converge")
        rows = Rows(0, load, load)
        errors = _errors(workload, params, inputs, result.outputs, rows, seed)
        worst = int(np.argmax(errors))
        _expect(errors[worst] <= 1, f"{what}: row {worst} has errors() {errors[worst]:.3g}, not 1")
        if result.saved is not None:
            saved = result.saved
            resumed = serial.run(workload, params, kept, split, variant=variant.name, resume=saved)
            for name, array in resumed.outputs.items():
                same = _are_same(array, result.outputs[name])
                _expect(same, f"{what}: {name} differs if continued after iteration 1")
    split_outputs = [s.name for s in workload.arrays(params) if s.is_output and not s.is_whole]
    for name in split_outputs:
        damaged = _damaged(result.outputs, name)
        found = _errors(workload, params, inputs, damaged, rows, seed).max()
        _expect(not found <= 1, f"errors() misses a wrong element of {name}: {found:.3g}")


def check_blocks(workload: Iterative, params: Any, inputs: Arrays | None = None) -> None:
    """Check that rectangles of a grid, advanced alone, become what they do in the whole grid.

    Passes without `Iterative.blocks`. `inputs` are generated if not given.

    Raises
    ------
    AssertionError
    """
    blocks = workload.blocks(params)
    if blocks is None:
        return
    others = set(blocks.state.values()) - {each.result for each in workload.state(params)}
    assert not others, f"blocks().state: {sorted(others)} isn't the result of a state array"
    if inputs is None:
        inputs = _generated(workload, params, workload.load(params), 0)
    for variant in workload.variants("cpu"):
        _check_variant_blocks(workload, params, blocks, inputs, variant)


def _check_variant_blocks(
    workload: Iterative, params: Any, blocks: Blocks, inputs: Arrays, variant: Variant
) -> None:
    state = blocks.complete(inputs)
    name = next(iter(blocks.state))
    rows, columns = (state[name].shape[axis] for axis in blocks.axes[name])
    grid, steps = (rows, columns), getattr(params, blocks.steps)
    steps = min(steps, min(grid) // 2 // blocks.reach)
    p = msgspec.structs.replace(params, **{blocks.steps: steps})
    whole = serial.run(workload, p, inputs, (workload.load(p),), variant=variant.name).outputs
    source = [Held("", Box.whole(grid))]
    high, wide = max(1, rows // 3), max(1, columns // 2)
    for box in (Box(0, high, 0, wide), Box(high, rows, 0, wide), Box(high, rows, wide, columns)):
        width = steps * blocks.reach
        framed = box.framed(width, grid, blocks.periodic)
        plan = list(transfers(source, [Held("", box)], width, grid, blocks.periodic))
        given = {}
        for each, array in state.items():
            axes = blocks.axes[each]
            given[each] = np.empty(shape_with(array.shape, axes, framed), array.dtype)
            for part in plan:
                place = part.there.moved(-framed.top, -framed.left)
                cut(given[each], axes, place)[...] = cut(array, axes, part.here)
        layouts = {each: (array.shape, str(array.dtype)) for each, array in given.items()}
        own = workload.infer({**blocks.params, blocks.steps: steps}, layouts)
        found = serial.run(workload, own, given, (workload.load(own),), variant=variant.name)
        inner = box.moved(-framed.top, -framed.left)
        for each in blocks.axes:
            if each in found.outputs:
                axes = blocks.axes[each]
                ours = cut(found.outputs[each], axes, inner)
                theirs = cut(whole[each], axes, box)
                rounding = BLOCK_ROUNDINGS * steps * np.finfo(theirs.dtype).eps
                close = np.abs(ours - theirs) <= rounding * np.abs(whole[each]).max()
                what = f"{variant.name}: {each} of a block"
                _expect(bool(close.all()), f"{what} isn't the whole grid's")


def _errors(
    workload: Iterative, params: Any, inputs: Arrays, outputs: Arrays, rows: Rows, seed: int
) -> np.ndarray:
    found = workload.errors(params, inputs, outputs, rows, seed)
    return _checked_errors("errors()", found, rows.count)
