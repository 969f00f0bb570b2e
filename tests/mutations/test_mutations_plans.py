"""Each wait and each guard of a plan's timeline, taken out, makes a test fail."""

import subprocess
import sys
from pathlib import Path

RUNNER = Path(__file__).parent / "runner.py"


def test_every_mutation_of_the_schedule_is_found_out() -> None:
    done = subprocess.run(
        [sys.executable, str(RUNNER), "plans"], capture_output=True, text=True, check=False
    )

    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.endswith("mutations are found out\n")
