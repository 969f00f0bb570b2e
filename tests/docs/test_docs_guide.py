"""The packages of docs/guide and examples/lbm install into a fresh environment and run there."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path

import numpy as np
import pytest

ROOT = Path(__file__).parent.parent.parent
HETSCHED = ("-m", "hetsched.cli.main")


@pytest.fixture(scope="module")
def fresh_python(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The Python of a new environment with both packages installed.

    The environment sees the packages of this one, so that nothing is fetched.
    """
    folder = tmp_path_factory.mktemp("guide")
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", folder / "venv"], check=True)
    python = folder / "venv/bin/python"
    name = f"python{sys.version_info.major}.{sys.version_info.minor}"
    paths = [ROOT, ROOT / "workloads", sysconfig.get_path("purelib")]
    listing = folder / "venv/lib" / name / "site-packages/parent.pth"
    listing.write_text("".join(f"{path}\n" for path in paths))
    sources = [folder / "guide", folder / "lbm"]
    for source, copy in zip((ROOT / "docs/guide", ROOT / "examples/lbm"), sources, strict=True):
        shutil.copytree(source, copy)
    offline = ("--quiet", "--no-deps", "--no-index", "--no-build-isolation")
    pip = (sys.executable, "-m", "pip", "--python", python)
    subprocess.run([*pip, "install", *offline, *sources], check=True)
    return python


def command(python: Path, folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    """A command in a folder of its own, without this process's search path."""
    environment = {key: value for key, value in os.environ.items() if key != "PYTHONPATH"}
    environment |= {"HETSCHED_STATE_DIR": str(folder / "state"), "XDG_CACHE_HOME": str(folder)}
    return subprocess.run(
        [python, *HETSCHED, *words, "--json"],
        capture_output=True,
        text=True,
        cwd=folder,
        env=environment,
        timeout=120,
        check=False,
    )


def run(python: Path, folder: Path, *words: str) -> dict[str, object]:
    """The JSON report of a command."""
    done = command(python, folder, *words)
    assert done.returncode == 0, done.stderr
    report: dict[str, object] = json.loads(done.stdout)
    return report


def test_the_smallest_workload_runs_from_a_file_but_cannot_be_verified(
    fresh_python: Path, tmp_path: Path
) -> None:
    x = np.random.default_rng(1).standard_normal((40, 30))
    np.save(tmp_path / "x.npy", x)

    report = run(fresh_python, tmp_path, "run", "softmax", "--input", "x.npy", "--output", "y.npy")

    y = np.exp(x) / np.exp(x).sum(axis=1, keepdims=True)
    np.testing.assert_allclose(np.load(tmp_path / "y.npy"), y)
    assert report["load"] == 40
    words = ("run", "softmax", "--rows", "9", "--cols", "5", "--verify")
    refused = command(fresh_python, tmp_path, *words)
    assert refused.returncode == 69
    assert "softmax declares no checks of its results" in refused.stderr


def test_rows_are_standardized_and_verified(fresh_python: Path, tmp_path: Path) -> None:
    x = np.random.default_rng(1).normal(5.0, 3.0, (40, 30))
    np.save(tmp_path / "x.npy", x)
    words = ("run", "standardize", "--input", "x.npy", "--output", "y.npy", "--verify")

    report = run(fresh_python, tmp_path, *words)

    y = np.load(tmp_path / "y.npy")
    assert (report["load"], report["verified"]) == (40, True)
    assert np.allclose(y.mean(axis=1), 0, atol=1e-12)
    assert np.allclose(y.std(axis=1), 1)


def test_the_workloads_of_the_guide_keep_what_workloads_promise(fresh_python: Path) -> None:
    code = (
        "from hetsched.testing import check_workload; from hetsched.workload import find\n"
        "for workload in map(find, ('standardize', 'plate')):\n"
        "    check_workload(workload, workload.infer({'rows': 12, 'cols': 9}, {}))"
    )
    subprocess.run([fresh_python, "-c", code], check=True)


def test_a_plate_is_computed_by_all_devices_and_verified(
    fresh_python: Path, tmp_path: Path
) -> None:
    words = ("run", "plate", "--rows", "24", "--cols", "16", "--tolerance", "0.01", "--verify")

    report = run(fresh_python, tmp_path, *words, "--output", "y.npy")

    y = np.load(tmp_path / "y.npy")
    assert (report["verified"], report["converged"], y.shape) == (True, True, (24, 16))
    assert report["residual"] <= 0.01  # type: ignore[operator]
    assert 0 < y[1:-1, 1:-1].min() < y[1:-1, 1:-1].max() < y[0].min() == 100


@pytest.mark.parametrize(
    "chosen", ["parameters or mask", pytest.param("test", marks=pytest.mark.stress)]
)
def test_the_package_of_flows_passes_its_own_tests(
    chosen: str, fresh_python: Path, tmp_path: Path
) -> None:
    """Those in examples/lbm, beside the installed package, with its workload found by name."""
    shutil.copytree(ROOT / "examples/lbm/tests", tmp_path / "tests")
    environment = {key: value for key, value in os.environ.items() if key != "PYTHONPATH"}

    words = ("-m", "pytest", "-q", "-x", "-W", "error", "-k", chosen, tmp_path / "tests")
    done = subprocess.run(
        [fresh_python, *words], capture_output=True, text=True, cwd=tmp_path, env=environment,
        timeout=300, check=False,
    )  # fmt: skip

    assert done.returncode == 0, done.stdout
