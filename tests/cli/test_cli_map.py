from __future__ import annotations

import contextlib
import json
from pathlib import Path

import numpy as np
import pytest
import scipy

from hetsched.store.formats import open_array

from .conftest import Call

DEVICES = '[[device]]\nkind = "cpu"\ncount = 2\n'
CODE = """
def shade(block, lamps, gain=1.0):
    return block * lamps.sum() * gain
def both(block):
    return block + 1, block.sum(axis=(1, 2))
def bright(block):
    if block.max() > 500:
        raise ValueError("too bright")
    return block
"""
SHADE = ("map", "--function", "filters:shade", "--broadcast", "1", "--arg", "gain=0.5")
X = np.arange(48 * 6 * 5, dtype="float32").reshape(48, 6, 5)


@pytest.fixture(autouse=True)
def files() -> None:
    Path("filters.py").write_text(CODE)
    np.save("x.npy", X)
    np.save("lamps.npy", np.ones(3, "float32"))


def read(name: str) -> np.ndarray:
    with contextlib.ExitStack() as closers:
        return np.asarray(open_array(name, 0, closers)[0 : X.shape[0]])


@pytest.mark.parametrize("verb", ["run", "submit"])
def test_a_function_is_mapped_over_files_by_run_and_by_a_daemon(
    call: Call, shell: Call, verb: str, request: pytest.FixtureRequest
) -> None:
    if verb == "submit":
        request.getfixturevalue("daemon")
    inputs = ("--input", "x.npy", "--input", "lamps.npy")
    shape = ("--shape", "48x6x5")
    ended = shell(verb, *SHADE, *inputs, *shape, "--output", "y.npy", "--json")
    assert ended.code == 0, ended.err
    assert json.loads(ended.out)["schema"] == {"run": "hetsched.map/1"}.get(verb, "hetsched.job/1")
    assert np.array_equal(np.load("y.npy"), X * 1.5)

    again = call(verb, *SHADE, *inputs, "--output", "y.npy")
    assert (again.code, "--force" in again.error) == (73, True)

    blur = ("--function", "scipy.ndimage:gaussian_filter", "--arg", "sigma=(1, 2, 0)")
    options = (*blur, "--arg", "mode=nearest", "--overlap", "4", "--mode", "nearest")
    ended = call(verb, "map", *options, "--input", "x.npy", "--output", "y.npy", "--force")
    assert ended.code == 0, ended.err
    expected = scipy.ndimage.gaussian_filter(X, (1, 2, 0), mode="nearest")
    assert np.allclose(np.load("y.npy"), expected, rtol=1e-6)


@pytest.mark.usefixtures("daemon")
def test_a_daemon_takes_the_code_as_it_is_and_says_which_block_failed(shell: Call) -> None:
    both = ("submit", "map", "--function", "filters:both", "--input", "x.npy")
    assert shell(*both, "--output", "a.npy", "--output", "b.npy").code == 0
    assert np.array_equal(np.load("b.npy"), X.sum(axis=(1, 2)))
    # Of another size: within a second Python takes a file of the same size for the same.
    Path("filters.py").write_text(CODE.replace("block + 1", "block + 1 + 1"))
    assert shell(*both, "--output", "y1=b.npy", "--output", "y0=a.npy", "--force").code == 0
    assert np.array_equal(np.load("a.npy"), X + 2)

    bright = ("submit", "map", "--function", "filters:bright", "--input", "x.npy")
    ended = shell(*bright)
    assert ended.code == 1
    assert "filters:bright, unit" in ended.error  # or units, by the chunk
    assert "failed: ValueError: too bright (" in ended.error
    assert 'raise ValueError("too bright")' in shell("show", ended.err.split()[1]).out


@pytest.mark.usefixtures("daemon")
@pytest.mark.parametrize("name", ["y.npy", "y.zarr", "y.h5:there", "y.tif"])
def test_a_daemon_divides_along_any_axis(call: Call, name: str) -> None:
    np.save("turned.npy", np.moveaxis(X, 0, 1))
    blur = ("--function", "scipy.ndimage:gaussian_filter", "--arg", "sigma=(0, 1, 2)")
    words = ("submit", "map", *blur, "--input", "turned.npy", "--axis", "-2", "--overlap", "5")
    assert call(*words, "--output", name, "--shape", "6x48x5").code == 0
    expected = scipy.ndimage.gaussian_filter(np.moveaxis(X, 0, 1), (0, 1, 2))
    with contextlib.ExitStack() as closers:
        found = np.asarray(open_array(name, 0, closers)[0:6])
    assert np.allclose(found, expected, rtol=1e-6)
    refused = call(*words)
    assert (refused.code, "give --output" in refused.error) == (2, True)


@pytest.mark.parametrize("name", ["y.zarr", "y.h5:there", "y.tif"])
def test_run_writes_what_map_writes(call: Call, name: str) -> None:
    Path("x.npy").unlink()
    np.save("turned.npy", np.moveaxis(X, 0, 2))
    words = ("run", "map", "--function", "numpy:sqrt", "--input", "turned.npy", "--axis", "2")
    assert call(*words, "--output", name, "--shape", "6x5x48").code == 0
    assert call(*words, "--output", name, "--force", "--resume").code == 0
    with np.errstate(all="raise"):
        assert np.allclose(np.moveaxis(read(name), 2, 0), np.sqrt(X))


def test_a_reduction_prints_its_value(call: Call) -> None:
    words = ("run", "reduce", "--function", "numpy:max", "--combine", "numpy:maximum")
    ended = call(*words, "--input", "x.npy", "--json")
    assert (ended.code, json.loads(ended.out)["value"]) == (0, float(X.max()))
    assert f"value: {X.max()}" in call(*words, "--input", "x.npy").out


@pytest.mark.parametrize("verb", ["run", "submit"])
@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        ("--input x.npy", 2, "--function: which one? Give MODULE:NAME"),
        ("--function filters:shade", 2, "--input: which files?"),
        ("--function filters --input x.npy", 2, "should be module:function"),
        ("--function filters:no --input x.npy", 2, "module 'filters' has no attribute 'no'"),
        ("--function none.such:f --input x.npy", 2, "No module named 'none'"),
        ("--function filters:CODE --input x.npy", 2, "no attribute"),
        ("--function filters:bright --input x.npy --arg 3=4", 2, "should be NAME=VALUE"),
        ("--function filters:bright --input x.npy --dtype odd", 2, "dtype: 'odd' is none of"),
        ("--function filters:bright --input x.npy --overlap -1", 2, "--overlap: -1 is out of"),
        (
            "--function filters:bright --input x.npy --mode odd",
            2,
            "mode: 'odd' should be one of reflect",
        ),
        ("--function filters:bright --input no.npy", 66, "no such file"),
        ("--function filters:bright --input filters.py", 65, "its name must end with"),
        ("--function numpy:sqrt --input x.npy --shape 48x6", 65, "the result has (48, 6, 5)"),
        ("--function numpy:sum --input x.npy", 65, "axis 0 must have as many"),
        ("--function filters:shade --input x.npy", 1, "missing 1 required positional"),
    ],
)
def test_a_mistake_is_one_line(call: Call, verb: str, words: str, code: int, said: str) -> None:
    ended = call(verb, "map", *words.split())
    assert ended.code == code, ended.err
    assert said in ended.error


def test_a_function_that_fails_says_where(call: Call) -> None:
    ended = call("run", "map", "--function", "filters:bright", "--input", "x.npy")
    assert ended.code == 1
    assert 'raise ValueError("too bright")' in ended.err
    assert "filters:bright, unit" in ended.error  # or units, by the chunk
