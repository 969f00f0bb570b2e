"""Real input from file to file: the photographs of `make demo`, checked plane by plane."""

from __future__ import annotations

import runpy
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

import hetsched
from hetsched.job import JobReport

EXAMPLES = Path(__file__).parent.parent.parent / "examples"
SINGLE = 2e-3
"""The tolerance of `fft` in single precision; the means of photographs are huge."""


@pytest.fixture(scope="module")
def photographs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    pytest.importorskip("skimage", reason="the photographs come with scikit-image")
    planes, _ = runpy.run_path(str(EXAMPLES / "photographs.py"))["photographs"]()
    path = tmp_path_factory.mktemp("photographs") / "photographs.npy"
    np.save(path, planes)
    return path


@pytest.fixture
def folders(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HETSCHED_STATE_DIR", str(tmp_path / "state"))
    monkeypatch.setenv("HETSCHED_RUNTIME_DIR", str(tmp_path / "run"))


@pytest.fixture(params=["cpu-only", "emulated-gpu"])
def local(request: pytest.FixtureRequest, folders: None) -> Iterator[hetsched.Local]:
    with hetsched.Local(config=request.param) as local:
        yield local


def test_there_are_at_least_64_distinct_photographs(photographs: Path) -> None:
    planes = np.load(photographs)

    distinct = {plane.tobytes() for plane in planes}

    assert len(distinct) == len(planes) >= 64
    assert planes.shape[1:] == (512, 512)


def test_spectra_of_photographs_are_right(local: hetsched.Local, photographs: Path) -> None:
    output = photographs.parent / "spectra.npy"

    job = local.submit("fft", photographs, out=output, force=True, verify=True)
    job.result(timeout=120)

    assert report(job).verified
    assert shares(report(job)) == len(np.load(photographs, mmap_mode="r"))
    assert worst(np.load(photographs), np.load(output)) < SINGLE


def report(job: hetsched.Job) -> JobReport:
    assert job.report is not None
    return job.report


def shares(report: JobReport) -> int:
    return sum(device.share for device in report.devices)


def worst(planes: np.ndarray, spectra: np.ndarray) -> float:
    """Largest max|y - reference| / rms(reference less its largest value) of all planes."""
    errors = []
    for plane, spectrum in zip(planes, spectra, strict=True):
        expected = np.fft.fft2(plane.astype("complex128"))
        magnitudes = np.abs(expected).ravel()
        magnitudes[magnitudes.argmax()] = 0
        errors.append(np.abs(spectrum - expected).max() / np.sqrt(np.mean(magnitudes**2)))
    return float(max(errors))
