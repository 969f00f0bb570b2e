"""The daemon's heap, in a process of its own."""

import platform
import subprocess
import sys

import pytest

pytestmark = pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="glibc's heap")

COUNT_ARENAS = """
import ctypes, threading
from hetsched.daemon.heap import limit_arenas
libc = ctypes.CDLL(None)
libc.malloc.restype = libc.fdopen.restype = ctypes.c_void_p
assert limit_arenas()
barrier = threading.Barrier(16)
def allocate():
    for _ in range(100):
        libc.malloc(10_000)
    barrier.wait()
threads = [threading.Thread(target=allocate) for _ in range(16)]
for thread in threads: thread.start()
for thread in threads: thread.join()
libc.malloc_info(0, ctypes.c_void_p(libc.fdopen(1, b"w")))
libc.fflush(None)
"""

FREE_AND_TRIM = """
import ctypes, pathlib
from hetsched.daemon.heap import trim_heap
libc = ctypes.CDLL(None)
libc.malloc.restype = ctypes.c_void_p
resident = lambda: int(pathlib.Path("/proc/self/statm").read_text().split()[1]) * 4096
blocks = [libc.malloc(60_000) for _ in range(1000)]
for block in blocks: ctypes.memset(ctypes.c_void_p(block), 1, 60_000)
for block in blocks[:-1]: libc.free(ctypes.c_void_p(block))
before = resident()
trim_heap()
print(before - resident())
"""

COLLECT_AMONG_WAITING_JOBS = """
import gc
from hetsched.daemon.heap import settle_objects
settle_objects()
collected = [0, 0, 0]
def count(phase, info): collected[info["generation"]] += phase == "start"
gc.callbacks.append(count)
waiting = [[] for _ in range(200_000)]
print(collected[2], collected[0] > 0, gc.get_freeze_count() > 1000)
"""


def output_of(code: str) -> str:
    return subprocess.run(
        [sys.executable, "-c", code], check=True, capture_output=True, text=True
    ).stdout


def test_all_threads_but_the_main_one_share_an_arena() -> None:
    assert output_of(COUNT_ARENAS).count("<heap nr=") == 2


def test_a_trim_returns_free_pages_below_used_ones() -> None:
    assert int(output_of(FREE_AND_TRIM)) > 40_000_000


def test_waiting_jobs_are_not_traversed_again_and_again() -> None:
    assert output_of(COLLECT_AMONG_WAITING_JOBS).split() == ["0", "True", "True"]
