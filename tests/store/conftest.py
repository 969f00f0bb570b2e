"""What tests of files share: another user, a small good file."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path

import numpy as np
import pytest

NOBODY = 65534


@contextmanager
def another_user() -> Iterator[Path]:
    """As nobody, with a folder that nobody may enter."""
    with tempfile.TemporaryDirectory() as folder:
        os.chmod(folder, 0o755)
        os.seteuid(NOBODY)
        try:
            yield Path(folder)
        finally:
            os.seteuid(0)


@pytest.fixture
def nobody() -> AbstractContextManager[Path]:
    """To be used in a `with`; skips where we can't become another user."""
    if os.geteuid() != 0:
        pytest.skip("needs root to become another user")
    return another_user()


@pytest.fixture
def npy(tmp_path: Path) -> str:
    np.save(tmp_path / "x.npy", np.arange(6, dtype="complex64").reshape(2, 3))
    return str(tmp_path / "x.npy")
