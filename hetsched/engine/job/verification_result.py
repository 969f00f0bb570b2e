"""Collects the results of checking one job's units. Pure."""

from __future__ import annotations

from hetsched.errors import JobFailed
from hetsched.transport.device_messages import Checked


class VerificationResult:
    """What the Checked messages of one job add up to.

    Attributes
    ----------
    error : JobFailed or None
        The first error beyond what rounding explains.
    max_error : float
        Largest max|y - reference| / max|reference| over the sampled units.
    """

    def __init__(self) -> None:
        self.error: JobFailed | None = None
        self.max_error = 0.0

    def add(self, checked: Checked) -> None:
        self.max_error = max(self.max_error, checked.max_error)
        for value, name in ((checked.worst, "residual"), (checked.sample_error, "difference")):
            if not value <= 1 and self.error is None:  # NaN is an error too
                self.error = JobFailed(
                    f"verification failed: unit {checked.unit}: the {name} is {value:.3g} times"
                    " what rounding explains; the result was not kept"
                )
