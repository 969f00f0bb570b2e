"""A map from file to file keeps little of either in memory."""

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import pytest

import hetsched

for library in ("h5py", "tifffile", "zarr"):
    pytest.importorskip(library)

MEASURED = """
import sys
import numpy as np
import hetsched

def resident():
    with open("/proc/self/smaps_rollup") as file:
        return next(int(line.split()[1]) for line in file if line.startswith("Pss:")) >> 10

def doubled(block):
    peaks.append(resident())
    return 2 * block

peaks = []
hetsched.map(doubled, np.ones((64, 256, 256), "f4"))
idle = resident()
peaks.clear()
hetsched.map(doubled, sys.argv[1], out=sys.argv[2])
print(max(*peaks, resident()) - idle)
"""


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Path]:
    with TemporaryDirectory(dir=tmp_path) as name:  # pytest would keep a quarter of a gigabyte
        yield Path(name)


@pytest.mark.parametrize("ending", [".npy", ".tif", ".zarr"])
def test_files_of_twice_the_memory_that_they_take(folder: Path, ending: str) -> None:
    source, target = folder / f"x{ending}", folder / f"y{ending}"
    hetsched.map(np.negative, np.broadcast_to(np.float32(1), (128, 512, 512)), out=source)
    command = [sys.executable, "-c", MEASURED, str(source), str(target)]
    child = subprocess.run(command, capture_output=True, text=True, timeout=100, check=True)
    assert int(child.stdout) < 64, f"{child.stdout} MiB"
