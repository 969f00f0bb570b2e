from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

LIMIT = 400 << 20
PARENTS = {
    Path("/sys/fs/cgroup/memory"): "memory.limit_in_bytes",
    Path("/sys/fs/cgroup"): "memory.max",
}


@pytest.fixture
def group() -> Iterator[Path]:
    for parent, limit in PARENTS.items():
        folder = parent / f"hetsched-{os.getpid()}"
        try:
            folder.mkdir()
            (folder / limit).write_text(f"{LIMIT}\n")
        except OSError:
            continue
        yield folder
        folder.rmdir()
        return
    pytest.skip("no control group with a memory limit can be made here")


def run_in(group: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    code = (
        f"import os; open({str(group / 'cgroup.procs')!r}, 'w').write(str(os.getpid()));"
        f"os.execv({sys.executable!r}, [{sys.executable!r}, '-m', 'hetsched.cli.main',"
        f" *{arguments!r}])"
    )
    return subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=False
    )


@pytest.mark.root
def test_about_the_largest_load_that_fits_runs_and_a_larger_one_is_refused(group: Path) -> None:
    refused = run_in(group, "run", "fft", "--batch", "150x512x512")
    assert refused.returncode == 65
    largest = re.search(r"largest load that fits is (\d+) units", refused.stderr)
    assert largest is not None, refused.stderr

    units = int(largest[1]) - 2  # what is left in the group differs by a few MiB from run to run
    fitting = run_in(group, "run", "fft", "--batch", f"{units}x512x512")
    assert fitting.returncode == 0, fitting.stderr
    assert "the control group has 400 MiB" in run_in(group, "doctor").stdout
