"""What tests of files share: a small good file."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest


@pytest.fixture
def npy(tmp_path: Path) -> str:
    np.save(tmp_path / "x.npy", np.arange(6, dtype="complex64").reshape(2, 3))
    return str(tmp_path / "x.npy")
