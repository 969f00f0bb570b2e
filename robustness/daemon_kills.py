"""SIGKILL of the daemon at random moments, under clients that reconnect to the next one.

Each client submits jobs of three kinds, one after the other: its own array (volatile), generated
input with the result in memory, and from file to file (both durable). In the end every job that
was acknowledged must have exactly one final state, in the journal and for its client.
"""

from __future__ import annotations

import concurrent.futures
import random
import sqlite3
import threading
import time
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

import hetsched
from benchmarks.results import Bar, Result
from hetsched.errors import HetschedError, InputMissing
from robustness.daemon import CORES, daemon
from robustness.scale import Scale

CLIENTS = 4
LONGEST_LIFE = 5.0
"""Seconds from READY=1 to the kill, at most. Arbitrary: device processes take one of them."""
RESULT_SECONDS = 120.0
"""A job whose Future isn't done by then hangs."""
SHAPE = (4, 64, 64)
GIVEN_UP = "was running each of the 3 times that the daemon ended"
"""How a job fails that was running at the last three kills. That is to be expected with lives as
short as here: one that ends while kernels are prepared leaves the same job first in line."""
MAX_KILLS = 3


@dataclass
class Outcome:
    """One submission: `number` is 0 if it was never acknowledged; `end`: what the client got.

    `kills`: of daemons while it was open.
    """

    ident: str
    number: int = 0
    durability: str = ""
    end: str = ""
    is_wrong: bool = False
    kills: int = 0


@dataclass
class Log:
    """What all clients saw."""

    outcomes: list[Outcome] = field(default_factory=list)
    is_over: threading.Event = field(default_factory=threading.Event)
    kills: int = 0


CONFIG = CORES + '[journal]\nkeep_jobs = 10000000\nlimit = "20GiB"\n'
"""The journal remembers every job until it has been compared with what the clients know."""


def measure(scale: Scale) -> Result:
    kills = scale.of(3, 50, 200)
    chance = random.Random(scale.seed)
    log, starts = Log(), []
    with daemon(CONFIG) as served, concurrent.futures.ThreadPoolExecutor(CLIENTS) as pool:
        try:
            connected = [served.client(timeout=60.0, reconnect=60.0) for _ in range(CLIENTS)]
            clients = [
                pool.submit(_run_client, client, served.folder, log, index, scale.seed)
                for index, client in enumerate(connected)
            ]
            for _ in range(kills):
                time.sleep(chance.uniform(0.0, LONGEST_LIFE))
                log.kills += 1
                served.kill()
                starts.append(served.start())
        finally:
            log.is_over.set()
        for client in clients:
            client.result()
        served.stop()
        return _result(kills, log.outcomes, _journal(served.folder / "state/journal.db"), starts)


def _run_client(
    client: hetsched.Client, runtime_folder: Path, log: Log, index: int, seed: int
) -> None:
    chance = np.random.default_rng([seed, index])
    folder = runtime_folder / f"files-{index}"
    folder.mkdir()
    with client:
        count = 0
        while not log.is_over.is_set():
            count += 1
            outcome = Outcome(f"client-{index}-{count}")
            log.outcomes.append(outcome)
            kind, before = (_from_array, _generated, _from_file)[count % 3], log.kills
            try:
                kind(client, outcome, chance, folder)
            except InputMissing:
                outcome.end = "result lost"
            except HetschedError as error:
                outcome.end = f"{type(error).__name__}: {error}"
            outcome.kills = log.kills - before


def _from_array(
    client: hetsched.Client, outcome: Outcome, chance: np.random.Generator, folder: Path
) -> None:
    x = chance.random(SHAPE).astype("complex64")
    result = _finish(client.submit("fft", x, id=outcome.ident), outcome)
    outcome.is_wrong = not _is_fft(x, result)


def _generated(
    client: hetsched.Client, outcome: Outcome, chance: np.random.Generator, folder: Path
) -> None:
    job = client.submit("fft", batch="x".join(map(str, SHAPE)), verify=True, id=outcome.ident)
    result = _finish(job, outcome)
    outcome.is_wrong = result.shape != SHAPE


def _from_file(
    client: hetsched.Client, outcome: Outcome, chance: np.random.Generator, folder: Path
) -> None:
    x = chance.random(SHAPE).astype("complex64")
    source, target = folder / f"{outcome.ident}.npy", folder / f"{outcome.ident}-out.npy"
    np.save(source, x)
    job = client.submit("fft", source, out=target, id=outcome.ident)
    _finish(job, outcome)
    outcome.is_wrong = not _is_fft(x, np.load(target))


def _finish(job: hetsched.Job, outcome: Outcome) -> np.ndarray:
    outcome.number, outcome.durability = job.id, job.durability
    try:
        result: np.ndarray = job.result(RESULT_SECONDS)
    finally:
        outcome.number, outcome.durability = job.id, job.durability
    outcome.end = "done"
    return result


def _is_fft(x: np.ndarray, result: np.ndarray) -> bool:
    return result.shape == x.shape and bool(np.allclose(result, np.fft.fft2(x), atol=1e-2))


def _journal(path: Path) -> dict[str, tuple[int, str]]:
    """Return the id of every job in the journal -> its number and stage."""
    with sqlite3.connect(f"file:{path}?mode=ro", uri=True) as connection:
        rows = connection.execute("SELECT client_id, number, stage FROM job").fetchall()
    assert len({number for _, number, _ in rows}) == len(rows)
    return {ident: (number, stage) for ident, number, stage in rows}


def _result(
    kills: int,
    outcomes: list[Outcome],
    journal: dict[str, tuple[int, str]],
    starts: list[float],
) -> Result:
    acknowledged = [o for o in outcomes if o.number]
    durable = [o for o in acknowledged if o.durability == "durable"]
    lost = [o for o in durable if o.ident not in journal]
    duplicates = [o for o in durable if journal.get(o.ident, (o.number, ""))[0] != o.number]
    unended = [o for o in acknowledged if not o.end]
    given_up = [o for o in outcomes if GIVEN_UP in o.end]
    early = [o for o in given_up if o.kills < MAX_KILLS]
    hung = [o for o in acknowledged if o.end.startswith("WaitTimeout")]
    two_ends = [o for o in durable if o.end and not _agree(o.end, journal.get(o.ident))]
    wrong = [o for o in outcomes if o.is_wrong]
    others = Counter(
        o.end.split(":")[0]
        for o in outcomes
        if o.end not in ("", "done", "result lost") and GIVEN_UP not in o.end
    )
    result = Result(
        "daemon_kills",
        "SIGKILL of the daemon under four clients that reconnect",
        (
            "kills",
            "jobs",
            "durable",
            "done",
            "result lost",
            "given up",
            "other ends",
            "longest start",
        ),
    )
    ends = Counter(o.end for o in outcomes)
    result.rows.append(
        (
            str(kills),
            str(len(outcomes)),
            str(len(durable)),
            str(ends["done"]),
            str(ends["result lost"]),
            str(len(given_up)),
            ", ".join(f"{name} {count}" for name, count in sorted(others.items())) or "none",
            f"{max(starts):.2f} s",
        )
    )
    result.data.append({"ends": dict(ends), "starts": starts, "wrong": [o.ident for o in wrong]})
    failures = (
        ("durable jobs lost", lost),
        ("duplicates", duplicates),
        ("wrong results", wrong),
        ("jobs given up after fewer than three kills", early),
        ("Futures that hung", [*hung, *unended]),
        ("jobs with two ends", two_ends),
    )
    for name, jobs in failures:
        result.bars.append(Bar(name, float(len(jobs)), 0, at_least=False))
    return result


def _agree(end: str, row: tuple[int, str] | None) -> bool:
    """Return whether what a client got fits the stage in the journal."""
    if row is None:
        return False
    if end in ("done", "result lost"):
        return row[1] == "done"
    return row[1] in ("failed", "cancelled") or end.startswith(("TryAgain", "WaitTimeout"))
