"""`map` in the kernel of a notebook."""

from __future__ import annotations

from pathlib import Path

import pytest
from libraries import library

nbformat, nbclient = library("nbformat"), library("nbclient")
library("ipykernel")

CELLS = [
    "%load_ext hetsched",
    "import numpy as np, scipy.fft, hetsched\nx = np.arange(6e6).reshape(60, -1)",
    "def root(block):\n    return np.sqrt(block)",
    "for _ in range(3):\n    assert np.array_equal(hetsched.map(root, x), np.sqrt(x))",
    "assert np.allclose(scipy.fft.rfft(x)[-1], np.fft.rfft(x[-1]))",
    "try:\n    hetsched.map(lambda block: block.missing, x)\nexcept AttributeError as error:\n"
    "    print(error.__notes__)",
    "print(hetsched.profile())",
    "local = hetsched.Local()\njob = local.submit('fft', batch=(4, 64, 64))",
    "_ = await job\njob",
    "job.explain()",
    "local.close()",
]


def test_a_notebook_maps_its_own_functions(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("HETSCHED_STATE_DIR", "IPYTHONDIR", "JUPYTER_RUNTIME_DIR"):
        monkeypatch.setenv(name, str(tmp_path))
    notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(c) for c in CELLS])

    nbclient.NotebookClient(notebook, timeout=120, kernel_name="python3").execute()

    texts = ["".join(o.get("text", "") for o in cell.outputs) for cell in notebook.cells]
    failed, profile = texts[5:7]
    assert "units" in failed or "unit 0" in failed
    assert "__main__:root" in profile
    assert "rfft" in profile
    job, explained = (notebook.cells[index].outputs[0].data["text/html"] for index in (8, 9))
    assert "<pre>&lt;Job 1 done&gt;\ndevice" in job
    assert explained.startswith('<img src="data:image/svg+xml;base64,')
    assert "where the time went" in explained
