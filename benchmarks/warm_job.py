"""A warm FFT job through the daemon, compared with direct library calls: submit to result.

    python -m benchmarks.warm_job [CASE...] [--dtype D] [--instances 5] [--minutes M] [--resume]
                                  [--plain] [--unsaved]

CASE is "64x500x500" or "64x500x500 complex64". Every measured case is saved at once, with those
of earlier runs on this processor. `--resume` leaves out the cases that this version of hetsched
has measured; `--minutes` starts no case after that time.
"""

from __future__ import annotations

import argparse
import functools
import json
import math
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from benchmarks import machine
from benchmarks.children import Peer, PeerMissing
from benchmarks.instances import (
    INSTANCES,
    Contestant,
    Instance,
    fastest,
    overall,
    race,
    speed,
)
from benchmarks.results import Bar, Result
from benchmarks.resumable import measure_each
from benchmarks.stats import milliseconds
from benchmarks.warm_cases import LIMITS, Case, selected

PEERS = ("pyfftw_peer", "dfti_peer", "mkl_fft_peer", "ducc_peer", "scipy_peer")
MKL = ("dfti_peer", "mkl_fft_peer")
PACKAGES = ("pyfftw", "mkl_fft", "ducc", "scipy")
OURS = "hetsched"
FIRST_WARM_UP, WARM_UP, SHORT_WARM_UP = 30, 8, 400
"""Warm-up jobs of the first instance, whose models the others find, of these, and of any instance
of a short job: by then a core team that pays has been started."""
SHORT_ELEMENTS = 4_000_000
"""Of a short job, at most."""
SECONDS = 1.5
MIN_ROUNDS, MAX_ROUNDS = 5, 25
"""Repetitions of an instance: as many as take `SECONDS`, within these limits."""
SMALL_SECONDS = 0.020
"""Cases that the fastest library does in less are judged by their difference, not their ratio."""
SETTLE = 0.25
"""Seconds between a peer's repetitions: MKL's threads spin for 0.2 s after theirs."""
PLAIN = Path(".venv-plain")
"""An environment with ducc0 and without MKL, created by `make bench`."""
COLUMNS = (
    "case", "hetsched, ms", "variant", "fastest peer, ms", "peer", "speed against it (quartiles)",
    "daemon's processor time, ms", "instances",
)  # fmt: skip


def measure(quick: bool) -> Result:
    return measure_cases("warm_job", selected(["64x100x100"] if quick else ()), save=not quick)


def measure_plain(quick: bool) -> Result:
    """Measure the same from an environment without MKL, against the peers without MKL."""
    if not PLAIN.is_dir():
        raise SystemExit(f"no {PLAIN}: VENV={PLAIN} .ci/venv ducc makes it")
    cases = selected(["64x100x100"] if quick else ())
    return measure_cases("warm_job_plain", cases, save=not quick)


def measure_cases(
    name: str,
    cases: Sequence[Case],
    *,
    save: bool,
    instances: int = INSTANCES,
    until: float = float("inf"),
    resume: bool = False,
) -> Result:
    """Measure `cases`; the other parameters are as for `measure_each`."""
    plain = name == "warm_job_plain"
    return measure_each(
        name,
        cases,
        lambda case: measured(case, instances, plain=plain),
        row,
        functools.partial(as_result, name),
        save=save,
        until=until,
        resume=resume,
    )


def measured(case: Case, instances: int, *, plain: bool = False) -> dict[str, Any] | None:
    """Race all contestants on one case; None if it doesn't fit in memory."""
    settings = case.settings(len(os.sched_getaffinity(0)))
    peers = [peer for peer in PEERS if not (plain and peer in MKL)]
    with tempfile.TemporaryDirectory(prefix="hs-") as state:
        contestants: dict[str, Contestant] = {
            OURS: functools.partial(_our_instance, case, settings, state, plain=plain)
        }
        for peer in peers:
            contestants[peer.removesuffix("_peer")] = functools.partial(
                _peer_instance, peer, settings, LIMITS[case.dtype]
            )
        found = race(contestants, instances, case.name, OURS)
    if OURS not in found or len(found) < 2:
        return None
    best = fastest(found, OURS)
    ours = found[OURS]
    speeds = {name: speed(ours, theirs) for name, theirs in found.items() if name != OURS}
    return {
        "case": case.name,
        "when": datetime.now(UTC).strftime("%Y-%m-%d %H:%M"),
        "seconds": {name: [list(i.seconds) for i in them] for name, them in found.items()},
        "ours": overall(ours),
        "fastest": best,
        "theirs": overall(found[best]),
        "ratio": {name: value.median for name, value in speeds.items()},
        "quartiles": [speeds[best].low, speeds[best].high],
        "variants": ours[-1].facts["variants"],
        "daemon_seconds": statistics.median(i.facts["daemon_seconds"] for i in ours),
        "instances": len(ours),
        "load_average": max(i.facts["load_average"] for i in ours),
    }


def _our_instance(
    case: Case, settings: dict[str, Any], state: str, *, plain: bool
) -> Instance | None:
    is_first = not Path(state, "state").exists()
    is_short = math.prod(case.shape) <= SHORT_ELEMENTS
    request = {
        **settings,
        "state": state,
        "environment": str(PLAIN.absolute()) if plain else None,
        "warm_up": SHORT_WARM_UP if is_short else FIRST_WARM_UP if is_first else WARM_UP,
        "rounds": MAX_ROUNDS if is_short else 9,
    }
    command = [sys.executable, "-m", "benchmarks.warm_instance", json.dumps(request)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        print(f"  {case.name}: {(done.stderr.strip().splitlines() or ['?'])[-1]}", flush=True)
        return None
    answer = json.loads(done.stdout.splitlines()[-1])
    if answer["error"] > LIMITS[case.dtype]:
        raise RuntimeError(f"{case.name}: hetsched is wrong by {answer['error']:.1e}")
    return Instance(tuple(answer.pop("seconds")), answer)


def _peer_instance(module: str, settings: dict[str, Any], limit: float) -> Instance | None:
    """Run a fresh process of one library. Raises RuntimeError if its result is wrong."""
    try:
        peer = Peer(module, settings).ready()
    except PeerMissing as missing:
        print(f"  without {module}: {missing}", flush=True)
        return None
    try:
        if peer.error() > limit:
            raise RuntimeError(f"{module} is wrong by {peer.error():.1e}")
        seconds: list[float] = []
        while len(seconds) < MIN_ROUNDS or (sum(seconds) < SECONDS and len(seconds) < MAX_ROUNDS):
            time.sleep(SETTLE)
            seconds.append(peer.run())
        return Instance(tuple(seconds), {"loaded": peer.loaded})
    finally:
        peer.close()


def as_result(name: str, entries: list[dict[str, Any]]) -> Result:
    title = "Warm FFT job" + (", MKL not installed" if name == "warm_job_plain" else "")
    result = Result(name, title, COLUMNS, data=entries)
    result.rows = [row(entry) for entry in entries]
    result.bars = bars(entries)
    return result


def row(entry: dict[str, Any]) -> tuple[str, ...]:
    low, high = entry["quartiles"]
    return (
        entry["case"],
        milliseconds(entry["ours"]),
        " ".join(entry["variants"]),
        milliseconds(entry["theirs"]),
        entry["fastest"],
        f"{entry['ratio'][entry['fastest']]:.2f} ({low:.2f} to {high:.2f})",
        milliseconds(entry["daemon_seconds"]),
        str(entry["instances"]),
    )


def bars(entries: Sequence[dict[str, Any]]) -> list[Bar]:
    large = [entry for entry in entries if entry["theirs"] >= SMALL_SECONDS]
    small = [entry for entry in entries if entry["theirs"] < SMALL_SECONDS]
    found: list[Bar] = []
    if large:
        best = [entry["ratio"][entry["fastest"]] for entry in large]
        found += [
            Bar("speed against the fastest library, worst case of 20 ms or more", min(best), 0.97),
            Bar("the same, median of these cases", statistics.median(best), 1.0),
        ]
    if small:
        excess = [(entry["ours"] - entry["theirs"]) * 1e3 for entry in small]
        found.append(
            Bar(
                "shorter cases, ms over the library, median", statistics.median(excess), 1.5, False
            )
        )
    if large and machine.intel():
        python = [
            min(entry["ratio"][name] for name in PACKAGES if name in entry["ratio"])
            for entry in large
        ]
        found.append(
            Bar("against the fastest Python package, median", statistics.median(python), 1.1)
        )
    used = [entry["daemon_seconds"] * 1e3 for entry in entries]
    if used:
        found.append(Bar("daemon's processor time per job, ms, most", max(used), 2.0, False))
    return found


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.warm_job")
    parser.add_argument("cases", nargs="*", metavar="CASE")
    parser.add_argument("--dtype", action="append", default=[])
    parser.add_argument(
        "--instances", type=int, default=INSTANCES, help="with fewer nothing is saved"
    )
    parser.add_argument("--minutes", type=float, default=float("inf"))
    parser.add_argument("--resume", action="store_true")
    parser.add_argument("--plain", action="store_true", help="without MKL, from .venv-plain")
    parser.add_argument("--unsaved", action="store_true")
    given = parser.parse_args()
    result = measure_cases(
        "warm_job_plain" if given.plain else "warm_job",
        selected(given.cases, given.dtype),
        save=not given.unsaved and given.instances >= INSTANCES,
        instances=given.instances,
        until=time.monotonic() + 60 * given.minutes,
        resume=given.resume,
    )
    print(f"\n{result.text()}", flush=True)


if __name__ == "__main__":
    main()
