"""The cases of `warm_job`: power-of-two and other sizes, many small planes to few large ones."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

DTYPES = ("complex64", "complex128")
LIMITS = {"complex64": 1e-5, "complex128": 1e-13}
"""Largest relative errors."""
BATCHES = (
    "4096x64x64",
    "2048x128x128",
    "1024x256x256",
    "256x512x512",
    "32x1024x1024",
    "8x2048x2048",
    "2x4096x4096",
    "3x8192x8192",
    "200x320x480",
    "32x1000x1000",
    "61x509x509",
    "64x500x500",
    "128x720x1280",
    "1x512x512",
    "8x256x256",
)
QUICK = (
    "4096x64x64 complex64",
    "64x500x500 complex64",
    "32x1024x1024 complex64",
    "1x512x512 complex64",
    "256x512x512 complex128",
)
"""The subset of `make bench-quick`."""


@dataclass(frozen=True)
class Case:
    batch: str
    dtype: str

    @property
    def name(self) -> str:
        return f"{self.batch} {self.dtype}"

    @property
    def shape(self) -> tuple[int, ...]:
        return tuple(map(int, self.batch.split("x")))

    def settings(self, threads: int) -> dict[str, Any]:
        """Return the case as its peers expect it."""
        return {"shape": self.shape, "dtype": self.dtype, "threads": threads}


def all_cases() -> list[Case]:
    return [Case(batch, dtype) for batch in BATCHES for dtype in DTYPES]


def selected(words: Sequence[str], dtypes: Sequence[str] = ()) -> list[Case]:
    """Return the cases with one of these batches, or "BATCH DTYPE" names; all without any.

    Raises
    ------
    ValueError
        A word names no case.
    """
    cases = all_cases()
    for word in words:
        batch, _, dtype = word.partition(" ")
        if not any(case.batch == batch for case in cases) and batch.count("x") != 2:
            raise ValueError(f"no case {word!r}; choose from: {', '.join(BATCHES)}")
        extra = [Case(batch, name) for name in ((dtype,) if dtype else DTYPES)]
        cases += [case for case in extra if case not in cases]
    chosen = [case for case in cases if not words or {case.batch, case.name} & set(words)]
    return [case for case in chosen if not dtypes or case.dtype in dtypes]
