"""The scripts of examples/ run, are right about their data, and draw their pictures."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from libraries import library

library("skimage")
library("matplotlib")
Image = library("PIL.Image")
EXAMPLES = Path(__file__).parent.parent.parent / "examples"


def run(folder: Path, *command: str) -> str:
    done = subprocess.run(
        [sys.executable, "-W", "error", str(EXAMPLES / command[0]), *command[1:]],
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()[-1]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("examples")
    run(folder, "photographs.py", "all.npy")
    stack = np.load(folder / "all.npy")[::6]
    np.save(folder / "photographs.npy", stack)
    np.save(folder / "spectra.npy", np.fft.fft2(stack))
    names = (folder / "all.txt").read_text(encoding="utf-8").splitlines()[::6]
    (folder / "photographs.txt").write_text("\n".join(names), encoding="utf-8")
    return folder


@pytest.mark.parametrize(
    ("script", "inputs", "figure", "limit"),
    [
        ("spectra.py", ["photographs.npy", "spectra.npy"], "", 0.0),
        ("denoise.py", ["photographs.npy"], r"([\d.]+) of the error left", 0.2),
        ("drift.py", [], r"off by at most ([\d.]+) pixels", 0.1),
        ("textures.py", [], r"off from the variance by ([\d.]+)", 0.1),
        ("foam.py", ["foam.zarr"], r"([\d.]+) of voxels wrong", 0.03),
    ],
)
def test_an_example(
    folder: Path, script: str, inputs: list[str], figure: str, limit: float
) -> None:
    if script == "foam.py":
        pytest.importorskip("zarr")
    last = run(folder, script, *inputs, "picture.png")

    if figure:
        assert float(re.findall(figure, last)[0]) <= limit
    with Image.open(folder / "picture.png") as picture:
        assert np.asarray(picture.convert("L")).std() > 10
    (folder / "picture.png").unlink()
