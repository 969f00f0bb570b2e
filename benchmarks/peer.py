"""The child process of one peer: reports that it is ready, then runs one repetition per line.

    python -m benchmarks.peer MODULE CASE_JSON

Lines in: "run", "check", "quit". Lines out: one JSON object each.
"""

from __future__ import annotations

import importlib
import json
import sys
import time
from typing import Any

from benchmarks import machine

WARM_UP = 2


def main() -> None:
    module, case = sys.argv[1], json.loads(sys.argv[2])
    try:
        run, check = importlib.import_module(f"benchmarks.peers.{module}").make(case)
    except ImportError as error:
        send({"missing": str(error)})
        return
    for _ in range(WARM_UP):
        run()
    send({"loaded": machine.loaded()})
    for line in sys.stdin:
        command = line.strip()
        if command == "quit":
            return
        send({"seconds": timed(run)} if command == "run" else {"error": check()})


def timed(run: Any) -> float:
    start = time.perf_counter()
    run()
    return time.perf_counter() - start


def send(answer: dict[str, Any]) -> None:
    print(json.dumps(answer), flush=True)


if __name__ == "__main__":
    main()
