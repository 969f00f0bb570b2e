"""A daemon whose state folder is on a full disk refuses durable jobs, and resumes by itself."""

from __future__ import annotations

import contextlib
import subprocess
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from served import CORES, serving

from hetsched.errors import CantCreate


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    folder = tmp_path / "small"
    folder.mkdir(mode=0o700)
    mount = ["mount", "-t", "tmpfs", "-o", "size=3m,mode=700", "tmpfs", str(folder)]
    if subprocess.run(mount, capture_output=True, check=False).returncode:
        pytest.skip("needs the right to mount a tmpfs")
    yield folder
    subprocess.run(["umount", str(folder)], check=True)


@pytest.mark.root
def test_a_full_disk_refuses_durable_jobs_until_there_is_room(small_disk: Path) -> None:
    filler = small_disk / "filler"
    with serving(CORES, HETSCHED_STATE_DIR=str(small_disk)) as served:
        with served.client() as client:
            client.submit("fft", batch="1x64x64").result(60)
            with contextlib.suppress(OSError), filler.open("wb", buffering=0) as file:
                while True:
                    file.write(bytes(4096))

            # Room that SQLite has reserved may still take some jobs.
            with pytest.raises(CantCreate, match="no room to record the job; make room"):
                for _ in range(1000):
                    client.submit("fft", batch="1x64x64").result(60)
            volatile = client.submit("fft", np.ones((1, 64, 64), "complex64")).result(60)
            filler.unlink()
            durable = client.submit("fft", batch="1x64x64").result(60)

        assert volatile.shape == durable.shape == (1, 64, 64)
        assert served.stop() == 0
