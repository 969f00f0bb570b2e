"""A warm FFT job through the daemon, from submission to result, against libraries called directly.

Twice: into an array that is used again, and from the user's own array into a new one.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np

from benchmarks import contest, machine
from benchmarks.contest import OURS, Found, milliseconds, ratio
from benchmarks.contestant import Subject
from benchmarks.fft_libraries import LIBRARIES
from benchmarks.serving import daemon, report

TITLE = "Warm FFT job"
CASES = tuple(
    f"{batch} {dtype}"
    for batch in (
        "64x500x500", "256x512x512", "8x2048x2048", "4096x64x64", "1024x256x256", "32x1024x1024",
        "61x509x509", "128x720x1280", "8x256x256", "1x512x512",
    )
    for dtype in ("complex64", "complex128")
)  # fmt: skip
QUICK = ("16x100x100 complex64",)
ROUNDS = 5
NEW = ", new arrays"
MAX_ERROR = {"complex64": 1e-5, "complex128": 1e-13}
LEARNING_JOBS, LEARNING_PAUSE = 60, 0.1
"""Jobs, and seconds before each, in a daemon whose models those of all rounds find: libraries plan
beforehand, too, and FFTW's plans are made while the daemon is idle."""
COLUMNS = (
    "case", "hetsched, ms", "variant", "fastest peer, ms", "peer", "speed against it (quartiles)",
    "new arrays: hetsched, ms", "fastest peer, ms", "peer", "speed against it (quartiles)",
)  # fmt: skip


def measure(case: str, rounds: int) -> contest.Benchmarks:
    with tempfile.TemporaryDirectory(prefix="hs-") as state:
        with contestant(OURS, case, state) as subject:
            for _ in range(LEARNING_JOBS):
                time.sleep(LEARNING_PAUSE)
                subject.runs[OURS]()
        names = (OURS, *LIBRARIES)
        return contest.race(
            case, {name: contest.process(__name__, name, case, state) for name in names}, rounds
        )


@contextmanager
def contestant(name: str, case: str, state: str) -> Iterator[Subject]:
    batch, dtype = case.split()
    shape = tuple(map(int, batch.split("x")))
    x = normal(shape, dtype)
    if name != OURS:
        y = np.zeros_like(x)
        transform = LIBRARIES[name](x, y, machine.cores())
        results = {}

        def run(mode: str, out: np.ndarray | None) -> None:
            results[mode] = transform(x, out)

        runs = {name: lambda: run("", y), name + NEW: lambda: run(NEW, None)}
        if name == "scipy":
            del runs[name]
        worst = lambda: max(error(x, result) for result in results.values())  # noqa: E731
        yield Subject(runs, worst, MAX_ERROR[dtype])
        return
    with daemon(folder=state) as served:
        client = served.client
        shared, out = client.empty(shape, dtype), client.empty(shape, dtype)
        shared[...] = x
        job = client.submit("fft", shared, out=out)
        job.result()
        result = out

        def reused() -> None:
            nonlocal job
            job = client.submit("fft", shared, out=out)
            job.result()

        def own() -> None:
            nonlocal result
            result = client.submit("fft", x).result()

        def facts() -> dict[str, str]:
            return {"variant": " ".join(sorted({d.variant for d in report(job).devices}))}

        yield Subject(
            {OURS: reused, OURS + NEW: own},
            lambda: max(error(x, out), error(x, result)), MAX_ERROR[dtype], facts,
        )  # fmt: skip


def normal(shape: tuple[int, ...], dtype: str) -> np.ndarray:
    """Return normal numbers, the same in every process."""
    generator = np.random.default_rng(1)
    x = np.empty(shape, dtype)
    for plane in x:
        plane.real, plane.imag = generator.standard_normal((2, *shape[1:]), dtype="float32")
    return x


def error(x: np.ndarray, y: np.ndarray) -> float:
    """Return the largest error of the first and the last plane, over their largest value."""
    errors = []
    for plane, got in ((x[0], y[0]), (x[-1], y[-1])):
        want = np.fft.fft2(plane.astype("complex128"))
        errors.append(np.abs(got - want).max() / np.abs(want).max())
    return float(max(errors))


def row(case: str, found: Found, facts: dict[str, str]) -> tuple[str, ...]:
    cells = [case]
    for mode in ("", NEW):
        peer = contest.fastest(found, [name + mode for name in LIBRARIES])
        ours, theirs = found[OURS + mode], found[peer]
        cells.append(milliseconds(ours))
        if not mode:
            cells.append(facts["variant"])
        cells += [milliseconds(theirs), peer.removesuffix(mode), ratio(theirs, ours)]
    return tuple(cells)
