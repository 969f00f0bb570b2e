"""Property tests draw the same examples every time, wherever they run; signals have effect.

Nothing of the user's is read or written, neither here nor by the processes that tests start.
"""

from __future__ import annotations

import gc
import os
import signal
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from hypothesis import settings

# HETSCHED_TEST_PROFILE=stress: see `make stress`.
for profile, examples in (("test", 25), ("stress", 1000)):
    settings.register_profile(
        profile, derandomize=True, database=None, deadline=None, max_examples=examples
    )
settings.load_profile(os.environ.get("HETSCHED_TEST_PROFILE", "test"))

# Without bytecode, hundreds of processes would compile all that they import, and pytest all tests.
sys.dont_write_bytecode = False
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)

_folder = tempfile.TemporaryDirectory(prefix="hetsched-tests-", ignore_cleanup_errors=True)
for name in ("HETSCHED_CONFIG", "HETSCHED_RUNTIME_DIR", "HETSCHED_STATE_DIR"):
    os.environ.pop(name, None)
for name in ("XDG_CONFIG_HOME", "XDG_RUNTIME_DIR", "XDG_STATE_HOME"):
    os.environ[name] = _folder.name
# Kept between runs: what is compiled takes minutes. OpenCL's is shared by tests with other caches.
os.environ["XDG_CACHE_HOME"] = str(Path(__file__).parents[1] / ".pytest_cache")
os.environ["POCL_CACHE_DIR"] = f"{os.environ['XDG_CACHE_HOME']}/pocl"

# Ignored by the processes that we start, too, if we run in the background or under nohup.
for number in (signal.SIGINT, signal.SIGQUIT, signal.SIGHUP):
    if signal.getsignal(number) is signal.SIG_IGN:
        is_interrupt = number == signal.SIGINT
        signal.signal(number, signal.default_int_handler if is_interrupt else signal.SIG_DFL)


@pytest.fixture(autouse=True)
def ctrl_c_raises() -> Iterator[None]:
    """Whatever a command in this process, or in a fixture, did with the signal."""
    yield
    signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--regenerate", action="store_true", help="write tests/golden anew")


gc.disable()  # modules and tests stay: passes over them are a sixth of the collection


def pytest_collection_finish() -> None:
    """From now on, without modules and tests: a second each time."""
    gc.freeze()
    gc.enable()


@pytest.fixture
def golden(request: pytest.FixtureRequest) -> Callable[[str, str], None]:
    """Compare a text with the file of that name in tests/golden."""

    def check(name: str, text: str) -> None:
        path = Path(__file__).parent / "golden" / f"{name}.txt"
        if request.config.getoption("--regenerate"):
            path.write_text(text)
        assert text == path.read_text()

    return check
