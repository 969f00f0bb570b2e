from __future__ import annotations

import subprocess
import sys

import pytest

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
    command = [sys.executable, "-c", FIRST_USE_BY_TWO_THREADS, use]

    ended = subprocess.run(command, check=False, capture_output=True, text=True, timeout=60)

    assert ended.returncode == 0, ended.stderr
