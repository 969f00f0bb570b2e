"""Compares this checkout with another one, alternating repetitions.

python -m benchmarks.against FOLDER [--rounds 9] [CASE ...]

FOLDER is a checkout with hetsched installed in its .venv. Prints the median of the paired ratios,
this checkout over the other: below 1 is faster.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
from collections import defaultdict
from contextlib import ExitStack
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
CASES: tuple[tuple[str, str, tuple[Any, ...]], ...] = (
    ("warm job 256x512x512", "jobs", ("256x512x512", 3)),
    ("warm job 64x500x500", "jobs", ("64x500x500", 7)),
    ("warm job 8x2048x2048", "jobs", ("8x2048x2048", 5)),
    ("warm job 8x256x256", "jobs", ("8x256x256", 60)),
    ("warm job 1x512x512", "jobs", ("1x512x512", 60)),
    ("one plane 1x64x64", "jobs", ("1x64x64", 60)),
    ("2,000 tiny jobs in flight", "burst", ("1x64x64", 2000)),
    ("pcg 100x100x100", "solve", ("pcg", {"grid": (100, 100, 100), "tolerance": 1e-5}, 1)),
    ("jacobi 4096", "solve", ("jacobi", {"n": 4096}, 1)),
    ("kmeans 300000", "solve",
     ("kmeans", {"count": 300_000, "dimensions": 16, "clusters": 64, "tolerance": 0.0,
                 "max_iterations": 10}, 1)),
    ("heat 2048x2048", "solve", ("heat", {"grid": (2048, 2048), "steps": 50}, 1)),
    ("matrix_update 2048x2048x2048", "solve",
     ("matrix_update", {"rows": 2048, "cols": 2048, "inner": 2048}, 3)),
    ("plan 256 units, 1 GPU, 16 cores", "plan", (256, 1, 16)),
    ("plan 4096 units, 1 GPU, 16 cores", "plan", (4096, 1, 16)),
    ("hetsched status", "command", ("status",)),
    ("hetsched run fft 32x512x512", "command", ("run", "fft", "--batch", "32x512x512")),
)  # fmt: skip


class Peer:
    """A checkout that runs in separate processes."""

    def __init__(self, folder: Path) -> None:
        environment = {name: text for name, text in os.environ.items() if name != "PYTHONPATH"}
        self._process = subprocess.Popen(
            [folder / ".venv/bin/python", HERE / "checkout_peer.py"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            cwd=folder,
            env=environment,
        )
        assert self._process.stdout is not None
        if self._process.stdout.readline() != "ready\n":
            raise SystemExit(f"{folder}: no hetsched that runs in its .venv")

    def ask(self, action: str, arguments: tuple[Any, ...]) -> dict[str, float]:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        print(json.dumps([action, arguments]), file=self._process.stdin, flush=True)
        answer: dict[str, float] = json.loads(self._process.stdout.readline())
        return answer

    def close(self) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait(timeout=120)


def compare(ours: Peer, theirs: Peer, rounds: int, words: list[str]) -> None:
    """Print one line for each figure of each case whose title has one of `words`, if any."""
    for title, action, arguments in CASES:
        if words and not any(word in title for word in words):
            continue
        pairs: dict[str, list[tuple[float, float]]] = defaultdict(list)
        for turn in range(-1, rounds):  # the first round warms up
            seeded = (*arguments, turn) if action == "plan" else arguments
            order = (ours, theirs) if turn % 2 else (theirs, ours)
            answers = {peer: peer.ask(action, seeded) for peer in order}
            if turn >= 0:
                for figure, seconds in answers[ours].items():
                    if answers[theirs][figure]:
                        pairs[figure].append((seconds, answers[theirs][figure]))
        for figure, values in pairs.items():
            print(line(f"{title}, {figure}", values), flush=True)


def line(what: str, pairs: list[tuple[float, float]]) -> str:
    medians = [statistics.median(side) * 1e3 for side in zip(*pairs, strict=True)]
    low, middle, high = statistics.quantiles((a / b for a, b in pairs), n=4, method="inclusive")
    return (
        f"{what:48} {medians[0]:9.3f} ms, other {medians[1]:9.3f} ms,"
        f" ratio {middle:.3f} ({low:.3f} to {high:.3f})"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=Path, help="the other checkout")
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("words", nargs="*", metavar="CASE", help="a part of its title")
    arguments = parser.parse_intermixed_args()
    with ExitStack() as stack:
        peers = []
        for folder in (HERE.parent, arguments.folder.absolute()):
            peers.append(Peer(folder))
            stack.callback(peers[-1].close)
        compare(*peers, arguments.rounds, arguments.words)


if __name__ == "__main__":
    main()
