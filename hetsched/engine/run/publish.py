"""Naming of a job's finished output files, in threads of the pool.

With a journal in three steps: the files are completed under hidden names, the journal notes them,
then they get their names (`store/publication.py`). Without one they get them at once.
"""

from __future__ import annotations

import functools
import os
from collections.abc import Callable
from typing import Any

from hetsched.engine.admission.resolved_job import ResolvedJob
from hetsched.engine.context import EngineContext
from hetsched.engine.run.copies import ArrayCopies
from hetsched.engine.run.waits import answer_of
from hetsched.engine.threads import Step
from hetsched.store.publication import (
    PreparedOutput,
    discard_prepared,
    publish_each,
    publish_prepared,
)

OnPrepared = Callable[[tuple[PreparedOutput, ...], Callable[[BaseException | None], None]], None]
"""on_prepared(outputs, then): note the files, then call ``then(None)``, or with an error."""


async def publish(
    job: ResolvedJob,
    context: EngineContext,
    copies: ArrayCopies | None,
    on_prepared: OnPrepared | None,
) -> None:
    """Give all output files their names.

    Parameters
    ----------
    copies : ArrayCopies or None
        Results in memory that must be written to the files first, if any.
    on_prepared : callable or None
        None: there is no journal.

    Raises
    ------
    CantCreate, IOFailure, TryAgain
        Also whatever keeps the journal from noting the files.
    """
    seconds, text = context.deadlines.step, _text(job)

    async def in_thread(work: Callable[[Step], Any], seconds: float) -> Any:
        submit = functools.partial(context.disk.submit, work, deadline=seconds)
        return await answer_of(submit)

    if copies is not None:
        await in_thread(copies.run, seconds + copies.seconds)
    if on_prepared is None:
        await in_thread(_entering(text, job.publish), seconds)
        return
    outputs: tuple[PreparedOutput, ...] = await in_thread(_entering(text, job.prepare), seconds)
    try:
        await answer_of(lambda on_done: on_prepared(outputs, functools.partial(on_done, None)))
    except BaseException:
        context.disk.submit(functools.partial(_discard, outputs))
        raise
    await in_thread(functools.partial(_name, outputs, text), seconds)


def _text(job: ResolvedJob) -> str:
    return f"publishing {', '.join(out.path for out in job.outputs.values())}"


def _entering(text: str, function: Callable[[], Any]) -> Callable[[Step], Any]:
    def work(step: Step) -> Any:
        step.enter(text)
        return function()

    return work


def _name(outputs: tuple[PreparedOutput, ...], text: str, step: Step) -> None:
    step.enter(text)
    try:
        publish_each(
            (os.fsdecode(output.target), functools.partial(publish_prepared, output))
            for output in outputs
        )
    except BaseException:
        _discard(outputs, step)  # those that have their names have no hidden ones any more
        raise


def _discard(outputs: tuple[PreparedOutput, ...], step: Step) -> None:
    step.enter("removing unfinished output files")
    for output in outputs:
        discard_prepared(output)
