"""Parameters are converted, on several threads at once, or refused by name."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import pytest
from irregular_workload import Irregular

from hetsched.errors import UsageError
from hetsched.workload import convert, find, version

FIRST_USE_BY_TWO_THREADS = """
import sys, threading
from typing import Literal
import msgspec
from hetsched.workload import Workload, convert
from hetsched.workload.protocol import decode_params

class Params(msgspec.Struct, frozen=True):
    direction: Literal["forward", "inverse"]
    count: int

class Toy(Workload):
    name = "toy"
    Params = Params

Toy.__abstractmethods__ = frozenset()
toy = Toy()
convert_ = lambda: convert(toy, {"direction": "forward", "count": 4})
decode = lambda: decode_params(toy, b'{"direction": "forward", "count": 4}')
use = {"convert": convert_, "decode": decode}[sys.argv[1]]
within, resume = threading.Event(), threading.Event()

def pause(frame, event, argument):  # within msgspec, which hashes the types of fields
    if frame.f_code.co_name == "__hash__" and not within.is_set():
        within.set()
        resume.wait(0.2)

def first():
    sys.setprofile(pause)
    results.append(use())

results = []
thread = threading.Thread(target=first)
thread.start()
assert within.wait(30)
results.append(use())
resume.set()
thread.join()
assert results == [Params("forward", 4)] * 2, results
"""


@pytest.mark.parametrize("use", ["convert", "decode"])
def test_two_threads_may_use_a_type_for_the_first_time(use: str) -> None:
    """The second begins while the first is within msgspec, which crashed the process."""
    command = [sys.executable, "-c", FIRST_USE_BY_TWO_THREADS, use]

    ended = subprocess.run(command, check=False, capture_output=True, text=True, timeout=60)

    assert ended.returncode == 0, ended.stderr


@pytest.mark.parametrize(
    ("name", "values", "words"),
    [
        ("matrix_update", {}, "matrix_update needs rows"),
        ("matrix_update", {"rows": 4, "cols": 1.5, "inner": 2}, "cols: 1.5 is not a whole number"),
        ("fft", {"bach": "4"}, "fft has no parameter 'bach'; did you mean 'batch'?"),
        ("jacobi", {"n": 4, "criterion": "x"}, "criterion: 'x'; choose from: residual, change"),
        ("jacobi", {"criterion": "chang", "n": 4}, "criterion: 'chang'; did you mean 'change'?"),
        ("jacobi", {"n": 4, "criterion": 3}, "criterion: 3 is not text"),
        ("jacobi", {"n": 4, "omega": "2.5"}, "omega: 2.5, must be at most 2"),
        ("heat", {"grid": "4x4", "spacing": "nan"}, "spacing: nan, must be above 0"),
        ("heat", {"grid": "4x4", "spacing": "inf"}, "spacing: inf, must be finite"),
    ],
)  # fmt: skip
def test_values_that_are_no_parameters_are_named(
    name: str, values: dict[str, Any], words: str
) -> None:
    with pytest.raises(UsageError) as caught:
        convert(find(name), values)
    assert str(caught.value) == words


def test_a_missing_library_has_no_version() -> None:
    assert version("no_such_module_here") is None
    assert version("numpy")


def test_a_size_with_a_default_need_not_be_given() -> None:
    assert Irregular().infer({"units": 4}, {}).width == 4096
    with pytest.raises(UsageError, match="jacobi needs n, or an input"):
        find("jacobi").infer({}, {})
