"""Jobs are checked at submission and opened when their turn comes: what may happen in between."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from descriptors import open_descriptors

from hetsched.device import DeviceInfo
from hetsched.engine.admission.bind import MachineLimits
from hetsched.engine.admission.check import CheckedJob, check, open_job
from hetsched.engine.admission.files import PendingOutputs
from hetsched.engine.threads import Step
from hetsched.errors import CantCreate, DataError, InputMissing
from hetsched.job import Dependency, FileOut, FileRef, JobSpec

MACHINE = MachineLimits([DeviceInfo(name="cpu0", kind="cpu", identity="c")], {}, 1 << 30)


class Folder:
    """A folder with arrays, and the jobs of one daemon on them."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.pending = PendingOutputs()
        self.step = Step()

    def save(self, name: str, units: int = 4) -> None:
        np.save(self.path / name, np.ones((units, 8, 8), "complex64"))

    def spec(self, source: str = "x.npy", target: str = "y.npy", **fields: Any) -> JobSpec:
        return JobSpec(
            workload="fft",
            params={},
            inputs={"": FileRef(str(self.path / source))},
            outputs={"": FileOut(str(self.path / target), force=fields.pop("force", False))},
            **fields,
        )

    def check(self, *args: Any, **fields: Any) -> CheckedJob:
        return check(self.spec(*args, **fields), MACHINE, self.pending, self.step)

    def run(self, checked: CheckedJob) -> None:
        job = open_job(checked, MACHINE, self.step)
        try:
            job.publish()
        finally:
            job.close()

    def load(self, checked: CheckedJob) -> int:
        """Return the load with which the job starts."""
        job = open_job(checked, MACHINE, self.step)
        job.close()
        return job.load


@pytest.fixture
def folder(tmp_path: Path) -> Folder:
    folder = Folder(tmp_path)
    folder.save("x.npy")
    return folder


def test_a_waiting_job_holds_neither_descriptors_nor_files(folder: Folder) -> None:
    before = open_descriptors()
    checked = folder.check()

    assert open_descriptors() <= before
    assert [path.name for path in folder.path.iterdir()] == ["x.npy"]
    assert checked.job.load == 4
    assert checked.needs_files


def test_an_unchanged_input_is_opened_when_the_turn_comes(folder: Folder) -> None:
    assert folder.load(folder.check()) == 4


def test_an_input_removed_meanwhile_is_missing(folder: Folder) -> None:
    checked = folder.check()
    (folder.path / "x.npy").unlink()

    with pytest.raises(InputMissing):
        folder.load(checked)


def test_a_failed_opening_leaves_no_descriptor(folder: Folder) -> None:
    checked = folder.check()
    (folder.path / "x.npy").write_bytes(b"broken")
    before = open_descriptors()
    with pytest.raises(DataError):
        folder.load(checked)

    assert open_descriptors() <= before


def test_an_input_replaced_by_an_earlier_job_is_read_as_that_wrote_it(folder: Folder) -> None:
    folder.save("z.npy", units=6)
    earlier, later = folder.check("z.npy", "x.npy", force=True), folder.check()
    folder.run(earlier)

    assert later.job.load == 4
    assert folder.load(later) == 6


def test_the_output_of_a_waiting_job_may_be_the_input_of_one_that_comes_after_it(
    folder: Folder,
) -> None:
    earlier = folder.check()
    folder.pending.add(1, earlier.claims)
    later = folder.check("y.npy", "z.npy", after=(Dependency(1),))
    folder.run(earlier)

    assert later.job.load == 4
    assert folder.load(later) == 4


def test_an_output_that_is_still_to_be_written_needs_a_dependency(folder: Folder) -> None:
    folder.pending.add(7, folder.check().claims)

    with pytest.raises(InputMissing, match=r"job 7 will write it: submit this job with --after 7"):
        folder.check("y.npy", "z.npy")


def test_an_output_that_exists_is_refused_at_submission(folder: Folder) -> None:
    folder.save("y.npy")

    with pytest.raises(CantCreate, match="exists"):
        folder.check()


def test_an_output_in_a_folder_that_cannot_be_written_is_refused(folder: Folder) -> None:
    with pytest.raises(CantCreate, match="there is no folder"):
        folder.check(target="missing/y.npy")


def test_an_output_that_is_the_input_is_refused(folder: Folder) -> None:
    with pytest.raises(DataError, match="is also the input"):
        folder.check(target="x.npy", force=True)
