"""The explanation of a job: records, text and trace. Pure, without NumPy.

Only the records are imported here, since every client needs them; `text`, `trace` and `thinning`
are imported where they are used.
"""

from hetsched.explain.records import (
    Alternative,
    DeviceExplanation,
    Explanation,
    PhaseSeconds,
    TimeBreakdown,
    WhatIf,
)

__all__ = [
    "Alternative",
    "DeviceExplanation",
    "Explanation",
    "PhaseSeconds",
    "TimeBreakdown",
    "WhatIf",
]
