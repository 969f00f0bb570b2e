"""Peers as child processes that run one repetition on request."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from types import TracebackType
from typing import Any

# Freed memory is kept and used again: allocating 1 GiB would else cost seconds of page faults,
# which a peer without an output argument can't help.
KEEP_MEMORY = {
    "MALLOC_MMAP_MAX_": "0",
    "MALLOC_TRIM_THRESHOLD_": str(1 << 40),
    "MALLOC_TOP_PAD_": "0",
}
# Else MKL takes as many threads as it thinks worth it, or as there are cores without hyperthreads.
ALL_THREADS = {"MKL_DYNAMIC": "FALSE", "OMP_DYNAMIC": "FALSE"}


class PeerMissing(Exception):
    """The library isn't installed."""


class Peer:
    """One library on one case."""

    def __init__(self, module: str, case: dict[str, Any]) -> None:
        self.name = module.removesuffix("_peer")
        threads = str(case["threads"])
        names = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS")
        environment = {**os.environ, **KEEP_MEMORY, **ALL_THREADS, **dict.fromkeys(names, threads)}
        self._process = subprocess.Popen(
            [sys.executable, "-m", "benchmarks.peer", module, json.dumps(case)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env=environment,
        )

    def ready(self) -> Peer:
        """Wait until it is warm. Raises PeerMissing."""
        answer = self._read()
        if "missing" in answer:
            self.close()
            raise PeerMissing(answer["missing"])
        self.loaded: list[str] = answer["loaded"]
        return self

    def run(self) -> float:
        """Run one repetition and return its seconds."""
        return float(self._ask("run")["seconds"])

    def error(self) -> float:
        """Return the relative error of the last result."""
        return float(self._ask("check")["error"])

    def close(self) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait(timeout=60)
        assert self._process.stdout is not None
        self._process.stdout.close()

    def _ask(self, command: str) -> dict[str, Any]:
        assert self._process.stdin is not None
        print(command, file=self._process.stdin, flush=True)
        return self._read()

    def _read(self) -> dict[str, Any]:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            raise RuntimeError(f"{self.name}: ended with {self._process.wait()}")
        answer: dict[str, Any] = json.loads(line)
        return answer


class Peers:
    """A context manager that runs all installed peers of a case."""

    def __init__(self, modules: tuple[str, ...], case: dict[str, Any], limit: float) -> None:
        self._modules, self._case, self._limit = modules, case, limit
        self._running: list[Peer] = []

    def __enter__(self) -> list[Peer]:
        # One after the other: a plan measured while others compute is a bad plan.
        for module in self._modules:
            try:
                self._running.append(Peer(module, self._case).ready())
            except PeerMissing as missing:
                print(f"  without {module}: {missing}", flush=True)
        for peer in self._running:
            if peer.error() > self._limit:
                raise RuntimeError(f"{peer.name} is wrong by {peer.error():.1e}")
        return self._running

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        for peer in self._running:
            peer.close()
