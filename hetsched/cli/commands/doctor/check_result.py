"""The result of one check."""

from __future__ import annotations

import msgspec


class CheckResult(msgspec.Struct, frozen=True):
    """One row of the report: subject, result. `code`: 0, or the exit code of jobs that need it."""

    what: str
    found: str
    code: int = 0

    @property
    def mark(self) -> str:
        return "ok" if self.code == 0 else "PROBLEM"
