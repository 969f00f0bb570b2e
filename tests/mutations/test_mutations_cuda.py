"""Each wait and each guard of the CUDA device, taken out, makes tests fail."""

import subprocess
import sys
from pathlib import Path

RUNNER = Path(__file__).parent / "runner.py"


def test_every_mutation_is_detected() -> None:
    done = subprocess.run(
        [sys.executable, str(RUNNER), "cuda"], capture_output=True, text=True, check=False
    )

    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.endswith("mutations are found out\n")
