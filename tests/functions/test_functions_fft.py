"""Divided transforms are SciPy's and NumPy's, results and errors alike."""

from __future__ import annotations

import itertools
import os
import pickle
import runpy
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.fft
from hypothesis import given
from hypothesis import strategies as st

import hetsched
from hetsched import fft
from hetsched.functions.accelerate import Backend
from hetsched.functions.session import session
from hetsched.functions.transforms import ducc_function, scipys_own

RNG = np.random.default_rng(0)
NAMES = [
    f"{name}{count}"
    for name in ("fft", "ifft", "rfft", "irfft", "hfft", "ihfft")
    for count in ("", "2", "n")
]
SCIPYS = {name: getattr(scipy.fft, name) for name in NAMES}
NUMPYS = {name: getattr(np.fft, name) for name in NAMES if hasattr(np.fft, name)}

pytestmark = pytest.mark.usefixtures("engine")
of_one_engine = pytest.mark.parametrize("engine", ["cores"], indirect=True)


@pytest.fixture
def accelerated() -> Iterator[None]:
    """All calls are divided that can be."""
    hetsched.accelerate(threshold=0)
    yield
    hetsched.restore()


def splits() -> int:
    return sum(reasons.get("split", 0) for reasons in fft.stats().values())


def array(shape: list[int], dtype: str) -> np.ndarray:
    x = RNG.standard_normal(shape)
    if dtype.startswith("complex"):
        return (x + 1j * RNG.standard_normal(shape)).astype(dtype)
    return x.astype(dtype)


def outcome(function: Any, *arguments: Any, **keywords: Any) -> Any:
    """The result, or the type and text of the error."""
    try:
        return function(*arguments, **keywords)
    except Exception as error:
        return type(error), str(error)


def assert_same(ours: Any, theirs: Any) -> None:
    if isinstance(theirs, tuple):
        assert ours == theirs
        return
    assert ours.dtype == theirs.dtype
    tolerance = 1e-4 if ours.dtype.itemsize <= 8 and ours.dtype != np.float64 else 1e-9
    np.testing.assert_allclose(ours, theirs, rtol=tolerance, atol=tolerance)


CALLS = st.fixed_dictionaries(
    {
        "name": st.sampled_from(NAMES),
        "shape": st.lists(st.integers(1, 6), min_size=1, max_size=4),
        "dtype": st.sampled_from(
            ["float32", "float64", "complex64", "complex128", "float16", "int32", ">f8"]
        ),
        "axes": st.none() | st.lists(st.integers(-4, 3), min_size=1, max_size=3),
        "sizes": st.none() | st.lists(st.integers(0, 7), min_size=1, max_size=3),
        "norm": st.sampled_from([None, "ortho", "forward", "other"]),
        "is_transposed": st.booleans(),
    }
)


@pytest.mark.parametrize("module", ["scipy", "numpy"])
@given(call=CALLS)
@pytest.mark.usefixtures("accelerated")
def test_any_call_gives_what_the_library_gives(module: str, call: dict[str, Any]) -> None:
    originals, patched = (SCIPYS, scipy.fft) if module == "scipy" else (NUMPYS, np.fft)
    name = call["name"]
    if name not in originals:
        return
    x = array(call["shape"], call["dtype"])
    x = x.T if call["is_transposed"] else x
    keywords: dict[str, Any] = {"norm": call["norm"]}
    if name.endswith(("2", "n")):
        axes = None if call["axes"] is None else tuple(call["axes"])
        keywords |= {} if axes is None and name.endswith("2") else {"axes": axes}
        keywords |= {"s": call["sizes"]}
        if module == "numpy" and call["sizes"] is not None and axes is None:
            return  # deprecated there
    else:
        keywords |= {"axis": (call["axes"] or [-1])[0], "n": (call["sizes"] or [None])[0]}
    assert_same(
        outcome(getattr(patched, name), x, **keywords), outcome(originals[name], x, **keywords)
    )


@given(
    name=st.sampled_from(["fft", "ifft", "rfft", "irfft", "fft2", "ifftn", "rfftn", "irfft2"]),
    shape=st.lists(st.integers(2, 6), min_size=3, max_size=3),
    axes=st.lists(st.integers(0, 2), min_size=2, max_size=2, unique=True),
    norm=st.sampled_from([None, "backward", "ortho", "forward"]),
    is_double=st.booleans(),
)
def test_ducc0_gives_what_scipy_gives(
    name: str, shape: list[int], axes: list[int], norm: str | None, is_double: bool
) -> None:
    pytest.importorskip("ducc0")
    x = array(shape, "float32" if name.startswith("r") else "complex64")
    x = x.astype(np.result_type(x, np.float64)) if is_double else x
    keywords = {"axes": axes} if name.endswith(("2", "n")) else {"axis": axes[0]}
    expected = SCIPYS[name](x, norm=norm, **keywords)
    function, out = ducc_function(name, x, {"norm": norm, **keywords}), np.empty_like(expected)
    assert function is not None

    function(x, out)

    assert_same(out, expected)
    threaded = ducc_function(name, x, {"norm": norm, **keywords}, 2)
    assert threaded is not None
    assert_same(threaded(x, None), expected)


WIDTHS = itertools.count(100)


@of_one_engine
@pytest.mark.parametrize("name", NAMES)
def test_some_calls_try_a_librarys_own_threads(name: str) -> None:
    if session.cores < 2:
        pytest.skip("one core")
    shape = [2, 90, next(WIDTHS)]  # a new kind of call
    x = array(shape, "float64" if name.startswith(("r", "ih")) else "complex128")
    expected = SCIPYS[name](x, norm="ortho")
    before = fft.stats().get(name, {}).get("on a library's threads", 0)
    for _ in range(12):
        assert_same(getattr(fft, name)(x, norm="ortho"), expected)
    assert fft.stats()[name]["on a library's threads"] >= before + 3


@pytest.mark.parametrize(
    ("name", "shape", "axes"),
    [
        ("fft2", (20, 16, 8), (1, 2)),
        ("fftn", (12, 16, 8), None),
        ("rfftn", (12, 16, 8), (0, 1, 2)),
        ("irfftn", (12, 16, 8), None),
        ("rfft2", (1, 32, 32), (-2, -1)),
    ],
)
@pytest.mark.usefixtures("accelerated")
def test_calls_with_something_to_divide_are_divided(name: str, shape: Any, axes: Any) -> None:
    x = array(shape, "float32" if name.startswith("r") else "complex64")
    before = splits()
    assert_same(getattr(scipy.fft, name)(x, axes=axes), SCIPYS[name](x, axes=axes))
    assert splits() == before + 1


def test_calls_that_stay_in_this_thread_are_not_counted_as_split(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("hetsched.functions.run.HANDING", 1e9)
    monkeypatch.setattr(type(session), "overhead", 1e9)
    x = array([64, 4096], "float32")
    before = splits(), fft.stats().get("rfft", {}).get("small", 0)
    assert_same(fft.rfft(x), SCIPYS["rfft"](x))
    assert (splits(), fft.stats()["rfft"]["small"]) == (before[0], before[1] + 1)


def test_restored_functions_are_the_originals() -> None:
    hetsched.accelerate(0)
    hetsched.accelerate(0)
    assert scipy.fft.fft2 is not SCIPYS["fft2"]
    hetsched.restore()
    hetsched.restore()
    assert all(getattr(scipy.fft, name) is SCIPYS[name] for name in NAMES)
    assert all(getattr(np.fft, name) is NUMPYS[name] for name in NUMPYS)


def test_a_wrong_threshold_is_refused() -> None:
    with pytest.raises(hetsched.UsageError, match="threshold: -1 should be a number of bytes"):
        hetsched.accelerate(-1)


def test_scipy_signal_is_accelerated(request: pytest.FixtureRequest) -> None:
    import scipy.signal  # takes long, and holds functions of scipy.fft as it finds them

    request.getfixturevalue("accelerated")
    x, kernel = RNG.standard_normal((2, 64, 64))
    before = splits()
    accelerated = scipy.signal.fftconvolve(x, kernel)
    assert splits() > before
    np.testing.assert_allclose(accelerated, scipy.signal.convolve(x, kernel, method="direct"))


def test_a_global_backend_handles_everything() -> None:
    x = array([8, 30], "float64")
    with scipy.fft.set_backend(Backend(0), only=True):
        before = splits()
        assert_same(scipy.fft.rfft(x), scipys_own("rfft", x, {}))
        np.testing.assert_allclose(scipy.fft.idct(scipy.fft.dct(x)), x)
        assert scipy.fft.fft([1, 2]).tolist() == [3, -1]
    assert splits() == before + 1


def test_all_of_scipys_names_are_there() -> None:
    assert not set(scipy.fft.__all__) - set(dir(fft))
    assert fft.fft2.__doc__ == SCIPYS["fft2"].__doc__
    np.testing.assert_array_equal(fft.fftfreq(5), scipy.fft.fftfreq(5))


# ---- scripts

SCRIPT = """
import sys, numpy as np
from scipy import fft
print(__name__, sys.argv[1:], fft.fft2(np.ones((400, 64, 64)))[0, 0, 0].real)
"""


def run(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "hetsched", *arguments],
        capture_output=True, text=True, cwd=folder, env=dict(os.environ), check=False, timeout=120,
    )  # fmt: skip


@of_one_engine
def test_a_script_runs_accelerated(tmp_path: Path) -> None:
    (tmp_path / "script.py").write_text(SCRIPT)
    done = run(tmp_path, "--profile", "--threshold", "0", "script.py", "--flag", "x")

    assert done.stdout == "__main__ ['--flag', 'x'] 4096.0\n"
    assert done.stderr.splitlines()[1].split()[:3] == ["fft2", "split", "1"]
    assert done.returncode == 0


def test_accelerated_functions_are_pickled_by_name_and_leave_calls_to_a_backend(
    accelerated: None,
) -> None:
    for function in (scipy.fft.fft, np.fft.fft, fft.fft):
        assert pickle.loads(pickle.dumps(function)) is function

    class Mine:
        __ua_domain__ = "numpy.scipy.fft"

        @staticmethod
        def __ua_function__(*call: Any) -> str:
            return "mine"

    with scipy.fft.set_backend(Mine):
        assert scipy.fft.fft(np.ones((4, 4))) == "mine"
    assert scipy.fft.fft(np.ones((4, 4)))[0, 0] == 4


@of_one_engine
def test_a_module_gets_all_that_follows_it(tmp_path: Path) -> None:
    (tmp_path / "tool.py").write_text(SCRIPT)
    done = run(tmp_path, "--threshold", "0", "-m", "tool", "-x", "--profile", "a", "--", "-m")

    assert done.stdout == "__main__ ['-x', '--profile', 'a', '--', '-m'] 4096.0\n"
    assert (done.stderr, done.returncode) == ("", 0)


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (
            ["--threshold", "-1", "a.py"],
            2,
            "error: threshold: -1 should be a number of bytes from 0 on\n",
        ),
        (["-m", "nomod"], 1, "python -m hetsched: No module named nomod\n"),
        (["missing.py"], 2, "python -m hetsched: no such file: missing.py\n"),
        (["fails.py"], 3, ""),
    ],
)
@of_one_engine
@pytest.mark.usefixtures("accelerated")
def test_what_fails_ends_as_in_python(
    arguments: list[str], code: int, message: str, tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    (tmp_path / "fails.py").write_text("import sys; sys.exit(3)")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.setattr(sys, "argv", ["hetsched", *arguments])
    with pytest.raises(SystemExit) as ended:
        runpy.run_module("hetsched", run_name="__main__")
    assert ended.value.code == code
    assert capsys.readouterr().err.endswith(message)


PLUGIN = """
import hetsched, scipy.fft
import scipy.fft.tests.mock_backend  # which has the original functions as keys
from hetsched.functions.accelerate import Backend
from hetsched.functions.transforms import originals
from scipy._lib._array_api import xp_capabilities_table as table

def pytest_configure(config):  # before tests import functions by name
    {install}
    table.update({{getattr(scipy.fft, n): table[f] for n, f in originals.items() if f in table}})

def pytest_sessionfinish(session):
    from hetsched import fft
    print("SPLIT", sum(r.get("split", 0) for r in fft.stats().values()))
"""
WAYS = {
    "accelerate": "hetsched.accelerate(0)",
    "backend": "scipy.fft.set_global_backend(Backend(0))",
}

SIGNAL = (
    "fft or convolve or correlate or czt or hilbert or resample or welch or periodogram or csd or"
    " coherence or spectrogram"
)
"""Tests of what uses transforms in scipy.signal."""
SUITES: dict[str, tuple[list[str], int]] = {
    "scipy.fft": (["scipy.fft"], 800),
    "scipy.signal": (
        [*(f"scipy.signal.tests.test_{name}" for name in
           ("signaltools", "spectral", "czt", "short_time_fft")), "-k", SIGNAL],
        100,
    ),
}  # fmt: skip
"""What of SciPy's own tests is run, and the calls that are split in it at least."""


@pytest.mark.stress
@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("suite", SUITES)
def test_scipys_own_tests_pass(tmp_path: Path, suite: str, way: str) -> None:
    (tmp_path / "divides.py").write_text(PLUGIN.format(install=WAYS[way]))
    modules, splits_at_least = SUITES[suite]
    command = [sys.executable, "-m", "pytest", "-p", "divides", "-q", "-p", "no:cacheprovider"]
    env = {**os.environ, "PYTHONPATH": str(tmp_path)}
    done = subprocess.run(
        [*command, "--pyargs", *modules],
        capture_output=True, text=True, cwd=tmp_path, env=env, check=False, timeout=3600,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout[-3000:]
    assert int(done.stdout.rpartition("SPLIT ")[2].split()[0]) >= splits_at_least
