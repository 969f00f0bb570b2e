"""The explanation of a job: records, text and trace. Pure, without NumPy.

Only the records are imported here, since every client needs them; `text` and `trace` are imported
where they are used.
"""

from hetsched.explain.records import (
    Alternative,
    DeviceExplanation,
    Explanation,
    IterationHistory,
    IterationSpan,
    PhaseSeconds,
    RowMove,
    TimeBreakdown,
    WhatIf,
    WrittenCheckpoint,
)

__all__ = [
    "Alternative",
    "DeviceExplanation",
    "Explanation",
    "IterationHistory",
    "IterationSpan",
    "PhaseSeconds",
    "RowMove",
    "TimeBreakdown",
    "WhatIf",
    "WrittenCheckpoint",
]
