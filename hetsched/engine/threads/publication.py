"""Naming of a job's finished output files, in a thread of the pool.

With a journal in three steps: the files are completed under hidden names, the journal notes them,
then they get their names (`store/arrays/publication.py`). Without one they get them at once.
"""

from __future__ import annotations

import functools
import os
from collections.abc import Callable

from hetsched.engine.admission.resolved_job import ResolvedJob
from hetsched.engine.deadlines import Deadlines
from hetsched.engine.iterating.array_copies import ArrayCopies
from hetsched.engine.threads.step import Step
from hetsched.engine.threads.worker_pool import WorkerPool
from hetsched.errors import InternalError
from hetsched.store.arrays.publication import (
    PreparedOutput,
    discard_prepared,
    publish_each,
    publish_prepared,
)

OnPublished = Callable[[None, BaseException | None], None]
"""on_published(None, error)"""
OnPrepared = Callable[[tuple[PreparedOutput, ...], Callable[[BaseException | None], None]], None]
"""on_prepared(outputs, then): note the files, then call ``then(None)``, or with an error."""


class OutputPublisher:
    """Publishes the outputs of one job. On the loop's thread, except its tasks.

    Parameters
    ----------
    saves : callable
        Returns copies of results in memory that must be written to the files first, if any.
    """

    def __init__(
        self,
        job: ResolvedJob,
        files: WorkerPool,
        deadlines: Deadlines,
        on_prepared: OnPrepared | None,
        saves: Callable[[], ArrayCopies | None] = lambda: None,
    ) -> None:
        self._job, self._files, self._on_prepared = job, files, on_prepared
        self._saves = saves
        self._deadline = deadlines.publish
        self._text = f"publishing {', '.join(out.path for out in job.outputs.values())}"

    def publish(self, on_published: OnPublished) -> None:
        """Name all outputs, then ``on_published(None, error)``; first write those in memory."""
        copies = self._saves()
        if copies is None:
            self._publish_written(on_published)
            return

        def written(value: None, error: BaseException | None) -> None:
            if error is None:
                self._publish_written(on_published)
            else:
                on_published(None, error)

        self._files.submit(copies.run, written, deadline=self._deadline + copies.seconds)

    def _publish_written(self, on_published: OnPublished) -> None:
        on_prepared = self._on_prepared
        if on_prepared is None:
            self._files.submit(self._publish, on_published, deadline=self._deadline)
            return

        def prepared(
            outputs: tuple[PreparedOutput, ...] | None, error: BaseException | None
        ) -> None:
            if outputs is None:
                on_published(None, error or InternalError("the output files aren't complete"))
            else:
                on_prepared(outputs, functools.partial(self._name, outputs, on_published))

        self._files.submit(self._prepare, prepared, deadline=self._deadline)

    def _name(
        self,
        outputs: tuple[PreparedOutput, ...],
        on_published: OnPublished,
        error: BaseException | None,
    ) -> None:
        """Name prepared outputs, or discard them after an `error`."""
        if error is not None:
            self._files.submit(lambda step: _discard(outputs, step))
            on_published(None, error)
            return
        self._files.submit(
            lambda step: _publish_prepared(outputs, step, self._text),
            on_published,
            deadline=self._deadline,
        )

    def _publish(self, step: Step) -> None:
        step.enter(self._text)
        self._job.publish()

    def _prepare(self, step: Step) -> tuple[PreparedOutput, ...]:
        step.enter(self._text)
        return self._job.prepare()


def _publish_prepared(outputs: tuple[PreparedOutput, ...], step: Step, text: str) -> None:
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
