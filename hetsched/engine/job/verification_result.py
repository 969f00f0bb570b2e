"""What the checks of one job's units came to. Pure."""

from __future__ import annotations

from hetsched.errors import JobFailed
from hetsched.transport.device_messages import Checked


class Verdict:
    """Gathers Checked events: `wrong`, the first reason to fail the job, and the `max_error`."""

    def __init__(self) -> None:
        self.wrong: JobFailed | None = None
        self.max_error = 0.0

    def add(self, checked: Checked) -> None:
        self.max_error = max(self.max_error, checked.max_error)
        for value, what in ((checked.worst, "residual"), (checked.sample_error, "difference")):
            if not value <= 1 and self.wrong is None:  # NaN is wrong too
                self.wrong = JobFailed(
                    f"verification failed: unit {checked.unit}: the {what} is {value:.3g} times"
                    " what rounding explains; the result was not kept"
                )
