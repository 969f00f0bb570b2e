"""Compares this checkout with another one, in turns.

python -m benchmarks.against FOLDER [--rounds 7] [CASE ...]

FOLDER is a checkout with hetsched installed in its .venv. Both sides run cases of their own
`benchmarks`, each time in fresh processes, and keep what they have learnt. Prints the ratios, this
checkout over the other: below 1 is faster.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import subprocess
import tempfile
from collections import defaultdict
from pathlib import Path

from benchmarks.contest import milliseconds, ratio

HERE = Path(__file__).parents[1]
WARM_UPS = 3
"""Rounds that aren't counted: all variants are tried, and the fastest is used."""
CASES = {
    "warm_job": (
        "256x512x512 complex64", "64x500x500 complex64", "8x2048x2048 complex64",
        "8x256x256 complex64", "1x512x512 complex64",
    ),
    "solvers": (
        "jacobi 4096", "pcg 100", "kmeans 300000 float64", "heat 2048x2048",
        "matrix_update 2048x2048x2048 float32",
    ),
    "overhead": (
        "job 1x64x64", "burst of 2000 jobs", "hetsched status",
        "hetsched run fft --batch 32x512x512",
    ),
    "planning_time": ("256 units, 1 GPU, 8 cores", "4096 units, 1 GPU, 16 cores"),
}  # fmt: skip
SIDE = """
import importlib, json, sys
from benchmarks import contest
name, case, state = sys.argv[1:]
module = importlib.import_module(f"benchmarks.{name}")
if hasattr(module, "contestant"):
    found = dict(contest.process(module.__name__, contest.OURS, case, state)().values)
else:
    found = {each.get_name(): each.median() for each in module.measure(case, 1)}
print(json.dumps(found))
"""


def measured(folder: Path, name: str, case: str, state: str) -> dict[str, float]:
    """Return seconds by what was measured, in the checkout `folder`."""
    environment = {key: text for key, text in os.environ.items() if key != "PYTHONPATH"}
    done = subprocess.run(
        [folder / ".venv/bin/python", "-c", SIDE, name, case, state],
        cwd=folder, env=environment, stdout=subprocess.PIPE, text=True, check=True,
    )  # fmt: skip
    found: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
    return found


def compare(folders: tuple[Path, Path], name: str, case: str, rounds: int) -> None:
    """Print a line for each figure of a case."""
    figures: dict[str, dict[Path, list[float]]] = defaultdict(lambda: defaultdict(list))
    with tempfile.TemporaryDirectory(prefix="hs-") as state:
        for turn in range(-WARM_UPS, rounds):
            for folder in random.sample(folders, 2):
                learnt = Path(state) / str(folders.index(folder))
                learnt.mkdir(exist_ok=True)
                for figure, value in measured(folder, name, case, str(learnt)).items():
                    if turn >= 0:
                        figures[figure.removeprefix(f"{case}: ")][folder].append(value)
    for figure, sides in figures.items():
        ours, theirs = (sides[folder] for folder in folders)
        times = f"{milliseconds(ours)} ms, other {milliseconds(theirs)} ms"
        print(f"{case}, {figure}: {times}, ratio {ratio(ours, theirs)}", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=Path, help="the other checkout")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("words", nargs="*", metavar="CASE", help="a part of its name")
    given = parser.parse_intermixed_args()
    for name, cases in CASES.items():
        for case in cases:
            if not given.words or any(word in case for word in given.words):
                try:
                    compare((HERE, given.folder.absolute()), name, case, given.rounds)
                except subprocess.CalledProcessError as error:  # it may lack this case
                    print(f"{case}: can't be measured by {error.cmd[0]}", flush=True)


if __name__ == "__main__":
    main()
