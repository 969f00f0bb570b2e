"""The result of an iterative job."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

from hetsched.errors import HetschedError, InputMissing
from hetsched.job import JobReport
from hetsched.units import counted

if TYPE_CHECKING:
    from hetsched.explain import Explanation
    from hetsched.explain.iterations import IterationHistory


class IterativeResult(Mapping[str, Any]):
    """The outputs of an iterative job, by name and as attributes, and how it went.

    ``result.x`` and ``result["x"]`` are the output x: an array, or the Path of its file.

    Attributes
    ----------
    iterations : int
    residual : float or None
        After the last iteration; None: the workload has no such number.
    converged : bool or None
        False: the job ended by its limit of iterations. None: nothing was to converge.
    moves : int
        How often rows moved between devices.
    seconds : float
        Of all iterations.
    report : JobReport
    """

    def __init__(
        self,
        outputs: Mapping[str, Any],
        report: JobReport,
        explain: Callable[[], Explanation],
    ) -> None:
        self._outputs = dict(outputs)
        self._explain = explain
        self._history: IterationHistory | None = None
        self._has_asked = False
        self.report = report
        self.iterations = report.iterations or 0
        self.residual = report.residual
        self.converged = report.converged
        self.moves = report.moves or 0
        self.seconds = report.seconds

    @property
    def history(self) -> IterationHistory:
        """Return times, rows and residuals of all iterations; those of long runs in spans.

        `Job.result` asks the engine for it; in a callback, the first access.

        Raises
        ------
        InputMissing
            The job ended too long ago.
        TryAgain, UsageError
            As `Job.explain`.
        """
        if self._history is None:
            self._history = self._explain().iterations
        if self._history is None:
            raise InputMissing(f"job {self.report.job}: the records of its iterations are gone")
        return self._history

    def keep_history(self, explain: Callable[[], Explanation]) -> None:
        """Ask for the history once, now, so that it outlives the connection."""
        if not self._has_asked and self._history is None:
            self._has_asked = True
            with contextlib.suppress(HetschedError):
                self._history = explain().iterations

    @property
    def residuals(self) -> tuple[float | None, ...]:
        """Return the residual after each iteration, or each span of a long run's `history`."""
        return tuple(span.residual for span in self.history.spans)

    def __getitem__(self, name: str) -> Any:
        return self._outputs[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._outputs)

    def __len__(self) -> int:
        return len(self._outputs)

    def __getattr__(self, name: str) -> Any:
        outputs = self.__dict__.get("_outputs", {})
        if name in outputs:
            return outputs[name]
        raise AttributeError(f"no output {name!r}; this result has {', '.join(outputs)}")

    def __repr__(self) -> str:
        parts = [counted(self.iterations, "iteration")]
        if self.residual is not None:
            parts.append(f"residual {self.residual:.3g}")
        if self.converged is not None:
            parts.append("converged" if self.converged else "not converged")
        return f"<IterativeResult of {', '.join(self._outputs)}: {', '.join(parts)}>"
