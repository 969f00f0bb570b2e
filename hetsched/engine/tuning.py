"""Tunes variants in a process of its own: FFTW's plans, for example, or the sizes of calls.

A daemon does so while no job runs; an engine that may end with its job, as that of `hetsched run`,
before a job. Never for more than a tenth of the time that jobs of the kind have computed.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import logging
import os
import signal
import subprocess
import threading
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import msgspec

from hetsched.bounded_cache import BoundedCache
from hetsched.device_process.tuning import KIND, Request
from hetsched.engine.admission.resolved_job import Declaration, ResolvedJob, declared_variants
from hetsched.engine.processes.process import start_python
from hetsched.paths import cache_dir
from hetsched.transport.loop import Loop, Timer
from hetsched.units import format_seconds
from hetsched.workload import Tuning, Variant

log = logging.getLogger(__name__)

MAX_PART = 0.1
"""Of the time that jobs of a kind have computed."""
IDLE_SECONDS = 0.5
"""Without a job, before tuning begins: jobs of a script follow each other within less."""
MAX_KINDS = 64
"""Kinds of job that are remembered, the most recent."""
KEPT_LINES = 8
"""Of what a plug-in says in a step, the last."""
ATTEMPTS_SECONDS = 86_400.0
"""After which a step that was in vain is tried again: a disk may have room by then."""
PLUG_IN_SECONDS = 60.0
"""That a job waits while the plug-in says what is left to tune."""


@dataclass(eq=False)
class TunedKind:
    job: Declaration
    threads: frozenset[int] = frozenset()  # Of the devices that have computed it
    used: frozenset[str] = frozenset()  # Variants of the last run
    computed: float = 0.0
    seen: float = 0.0  # Of `computed` when a job last looked what may be tuned before it
    spent: float = 0.0
    news: list[str] = field(default_factory=list)  # For the report of the next job

    def next_step(self) -> tuple[Variant, int, Tuning] | None:
        """Return variant, threads and what is to be done; None: nothing may be afforded."""
        steps = [
            (variant, threads, variant.tuning_left(self.job.params, threads, str(cache_dir())))
            for variant in declared_variants(self.job.workload, KIND)
            for threads in sorted(self.threads)
            if variant.threaded or threads == 1
        ]
        begun = begun_steps()
        left = [step for step in steps if step[2].seconds > 0]
        first = min(
            (step for step in left if step[2].seconds != begun.get(self.key(step), (0.0,))[0]),
            key=lambda step: (not step[2].is_needed, step[0].name not in self.used),
            default=None,
        )
        affordable = MAX_PART * self.computed - self.spent
        return first if first is not None and first[2].seconds <= affordable else None

    def key(self, step: tuple[Variant, int, Tuning]) -> str:
        """Return what tells this step's variant and kind of job from others in every process."""
        (variant, threads, _), job = step, self.job
        parts = (job.reference, job.encoded_params, variant.name, variant.version, threads)
        return hashlib.blake2b(repr(parts).encode(), digest_size=16).hexdigest()


def begun_steps() -> dict[str, tuple[float, float]]:
    """Return the steps begun in the last day: what was left then, and when."""
    # One after which as much is left was in vain: else every `hetsched run` would try it again.
    try:
        found = msgspec.json.decode(
            _steps_path().read_bytes(), type=dict[str, tuple[float, float]]
        )
    except (OSError, msgspec.MsgspecError):
        return {}
    since = time.time() - ATTEMPTS_SECONDS
    return {key: begun for key, begun in found.items() if begun[1] > since}


def _save(begun: dict[str, tuple[float, float]]) -> None:
    path = _steps_path()
    fresh = path.with_suffix(f".{os.getpid()}")
    fresh.write_bytes(msgspec.json.encode(begun))
    fresh.replace(path)


def _steps_path() -> Path:
    return cache_dir() / "tuning-attempts.json"


class Tuner:
    """Decides what to tune and when. All methods are called on the loop's thread."""

    def __init__(self, loop: Loop, on_tuned: Callable[[], None], *, is_before_jobs: bool) -> None:
        self._loop = loop
        self._on_tuned = on_tuned  # A variant may now be faster
        self.is_before_jobs = is_before_jobs
        self._kinds: BoundedCache[tuple[str, bytes], TunedKind] = BoundedCache(
            max_entries=MAX_KINDS
        )
        self._begin_timer: Timer | None = None
        self._thread: threading.Thread | None = None  # Waits for the process
        self._process: subprocess.Popen[bytes] | None = None
        self._is_paused = self._is_closed = False
        self._looks_again = False  # When the thread ends: other jobs have run meanwhile

    def on_idle(self) -> None:
        """No job runs: go on, or begin soon."""
        if self._is_closed:
            return
        self._is_paused = False
        if self._thread is not None:
            self._looks_again = True
            self._signal(signal.SIGCONT)
        elif self._begin_timer is None:
            self._begin_timer = self._loop.call_at(time.monotonic() + IDLE_SECONDS, self._begin)

    def on_job(self) -> None:
        """A job runs: leave the cores to it."""
        if self._begin_timer is not None:
            self._begin_timer.cancel()
            self._begin_timer = None
        self._is_paused = True
        self._signal(signal.SIGSTOP)

    async def tune_now(self, kind: TunedKind, computed: float, say: Callable[[str], None]) -> None:
        """Tune for a job, which waits; `computed`: seconds that jobs like it have, at least."""
        kind.computed = kind.seen = max(kind.computed, computed)
        kind.threads = kind.threads or frozenset([1])
        is_due = self._thread is None
        while is_due:
            done = self._start([kind], False, say)
            while not done.done():
                await asyncio.wait([done], timeout=PLUG_IN_SECONDS)
                if not done.done() and self._process is None:
                    log.warning("tuning hangs in the code of a plug-in")
                    done.set_result(False)
            is_due = done.result()
        say("")

    def close(self) -> None:
        self._is_closed = True
        self.on_job()
        self._follow_pause()
        if self._thread is not None:
            self._thread.join(timeout=5.0)

    def kind(self, job: ResolvedJob) -> TunedKind:
        assert job.declaration is not None, "it has been bound"
        key, declaration = (job.reference, job.encoded_params), job.declaration
        return self._kinds.get_or_compute(key, lambda: TunedKind(declaration))

    def _begin(self) -> None:
        self._begin_timer = None
        kinds = [kind for _, kind in self._kinds.items()]
        self._start(kinds, True, lambda text: None)

    def _start(
        self, kinds: list[TunedKind], is_idle: bool, say: Callable[[str], None]
    ) -> asyncio.Future[bool]:
        """Tune the first of `kinds` for which something is due; return whether it was."""
        done: asyncio.Future[bool] = self._loop.create_future()

        def work() -> None:
            has_run = False
            try:
                has_run = any(self._tune(kind, is_idle, say) for kind in kinds)
            except BaseException:  # a plug-in's code may raise anything
                log.exception("tuning failed")
            self._loop.call_soon_threadsafe(finish, has_run)

        def finish(has_run: bool) -> None:
            self._thread = None
            if (has_run or self._looks_again) and not self._is_paused:
                self.on_idle()
            if not done.done():
                done.set_result(has_run)

        self._looks_again = False
        self._thread = threading.Thread(target=work, name="tuning", daemon=True)
        self._thread.start()
        return done

    def _tune(self, kind: TunedKind, is_idle: bool, say: Callable[[str], None]) -> bool:
        """Do one step for `kind` and wait for it, in the thread; return whether one was due."""
        step = kind.next_step()
        if step is None or self._is_closed:
            return False
        variant, threads, tuning = step
        begun = begun_steps()
        begun[kind.key(step)] = (tuning.seconds, time.time())
        try:
            _save(begun)
        except OSError as error:
            log.warning("nothing is tuned: %s", error)
            return False
        request = Request(
            workload=kind.job.reference,
            source=kind.job.source,
            params=kind.job.encoded_params,
            variant=variant.name,
            load=kind.job.load,
            threads=threads,
            seconds=tuning.seconds,
            is_idle=is_idle,
            parent=os.getpid(),
        )
        # The kernel ends it with this thread
        self._process = process = start_python(
            ["hetsched.device_process.tuning"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
        )
        if is_idle:
            self._loop.call_soon_threadsafe(self._follow_pause)
        said, end = _converse(
            process,
            msgspec.json.encode(request),
            lambda text: self._loop.call_soon_threadsafe(say, text),
        )
        self._process = None
        if self._is_closed:
            del begun[kind.key(step)]
            _save(begun)
            return False
        if process.returncode:
            kind.spent += tuning.seconds
            why = end or f"exit status {process.returncode}"
            log.warning("%s can't be tuned: %s", variant.name, why)
            return True
        seconds = float(end)
        kind.spent += seconds
        self._loop.call_soon_threadsafe(self._on_tuned)
        if is_idle:
            what = "; ".join(said) or f"tuning {variant.name}"
            kind.news.append(f"while no job ran: {what}: {format_seconds(seconds)}")
        return True

    def _follow_pause(self) -> None:
        if self._is_closed:
            self._signal(signal.SIGKILL)
        elif self._is_paused:
            self._signal(signal.SIGSTOP)

    def _signal(self, number: signal.Signals) -> None:
        process = self._process
        if process is not None:
            process.send_signal(number)


def _converse(
    process: subprocess.Popen[bytes], request: bytes, say: Callable[[str], object]
) -> tuple[list[str], str]:
    """Send `request`; return what the plug-in said, after passing it on, and the last word."""
    assert process.stdin is not None
    assert process.stdout is not None
    said: deque[str] = deque(maxlen=KEPT_LINES)
    end = ""
    with process:
        with contextlib.suppress(BrokenPipeError):
            process.stdin.write(request)
            process.stdin.close()
        for line in process.stdout:
            word, _, text = line.decode(errors="replace").strip().partition(" ")
            if word == "said":
                said.append(text.rstrip(". "))
                say(said[-1])
            else:
                end = text
    return list(said), end
