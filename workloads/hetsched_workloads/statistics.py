"""The workload `statistics`: mean, variance, extremes, histogram and quantiles of all values.

Devices combine partial results: mean and variance as T. F. Chan, G. H. Golub and R. J. LeVeque
do ("Updating formulae and a pairwise algorithm for computing sample variances", 1979), counts by
addition. Quantiles are exact: each iteration counts the next 16 bits of the values that agree with
a quantile in all earlier ones, so float32 takes two and float64 four.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Annotated, Any

import msgspec
from msgspec import Meta

from hetsched.errors import DataError, UsageError
from hetsched.workload import (
    Arrays,
    ArraySpec,
    Iterative,
    KernelContext,
    Reduction,
    Rows,
    Stage,
    StageCall,
    StageKernel,
    StateArray,
)
from hetsched_workloads.declarations import DTYPES, WithExtent, parse

if TYPE_CHECKING:
    import numpy as np

FORMS = (("COUNT",), ("COUNT", "COLS"), ("COUNT", "ROWS", "COLS"))
DIGIT_BITS = 16
DIGITS = 1 << DIGIT_BITS
MAX_QUANTILES = 8
"""Each needs 1 MiB of counts on each device."""
BLOCK = {"numpy": 1 << 18, "cupy": 1 << 24}
"""Values that are looked at together; some temporary arrays are as large."""


class StatisticsParams(msgspec.Struct, frozen=True):
    shape: Annotated[str, Meta(description="COUNT, COUNTxCOLS or COUNTxROWSxCOLS")]
    bins: Annotated[int, Meta(ge=1, le=1 << 20, description="of the histogram")] = 256
    low: Annotated[
        float, Meta(description="the histogram's first edge; equal to high: x's minimum")
    ] = 0.0
    high: Annotated[float, Meta(description="its last edge, or x's maximum")] = 0.0
    quantiles: Annotated[str, Meta(description="fractions, at most 8")] = "0.25,0.5,0.75"
    dtype: Annotated[str, Meta(description=DTYPES.description)] = DTYPES.single.name

    @property
    def sizes(self) -> tuple[int, ...]:
        return parse(self.shape, FORMS)

    @property
    def fractions(self) -> list[float]:
        """Raises UsageError."""
        try:
            fractions = [float(text) for text in self.quantiles.split(",")]
        except ValueError:
            fractions = [math.nan]
        if not all(0 <= q <= 1 for q in fractions) or len(fractions) > MAX_QUANTILES:
            example = f"needs at most {MAX_QUANTILES} numbers from 0 to 1, as 0.25,0.5"
            raise UsageError(f"quantiles: {self.quantiles!r:.80}; {example}")
        return fractions

    @property
    def ranks(self) -> list[int]:
        """Places of the two sorted values between which each quantile is."""
        last = math.prod(self.sizes) - 1
        lower = [math.floor(q * last) for q in self.fractions]
        return [rank for low in lower for rank in (low, min(low + 1, last))]


class Statistics(WithExtent, Iterative):
    """Mean, variance, histogram and quantiles of all of x.

    Outputs: "summary" (4,), "histogram" (bins,), "edges" (bins + 1,), "quantiles".
    """

    name = "statistics"
    Params = StatisticsParams
    extent = "shape"
    dtypes = DTYPES
    writes_all = True
    optional_outputs = ("histogram", "edges", "quantiles")

    def forms(self, explicit: Mapping[str, Any]) -> Sequence[tuple[str, ...]]:
        return FORMS

    def load(self, p: StatisticsParams) -> int:
        DTYPES.parse(self.name, p.dtype)
        if not p.low <= p.high or math.isinf(p.high - p.low):
            raise UsageError(f"low: {p.low:g}, must be finite, and at most high, {p.high:g}")
        return len(p.fractions) and p.sizes[0]

    def arrays(self, p: StatisticsParams) -> Sequence[ArraySpec]:
        return (
            ArraySpec("x", "split", p.sizes[1:], p.dtype),
            ArraySpec("summary", "whole-out", (4,), "float64"),
            ArraySpec("histogram", "whole-out", (p.bins,), "int64"),
            ArraySpec("edges", "whole-out", (p.bins + 1,), "float64"),
            ArraySpec("quantiles", "whole-out", (len(p.fractions),), "float64"),
        )

    def state(self, p: StatisticsParams) -> Sequence[StateArray]:
        return ()

    def reductions(self, p: StatisticsParams) -> Sequence[Reduction]:
        """`targets`, the same on all devices: bits known, rank among those that share them, pass.

        `digits`: how many of these have each value in the next bits.
        """
        return (
            Reduction("moments", (5,), combine=merge_moments),
            Reduction("histogram", (p.bins,), "int64"),
            Reduction("targets", (len(p.ranks), 3), "int64", "max"),
            Reduction("digits", (len(p.ranks), DIGITS), "int64"),
        )

    def start(self, p: StatisticsParams) -> Sequence[Stage]:
        return (Stage("moments", ("x",), (), ("moments", "histogram", "targets", "digits")),)

    def iteration(self, p: StatisticsParams) -> Sequence[Stage]:
        return (Stage("count", ("x",), (), ("histogram", "targets", "digits")),)

    def finish(self, p: StatisticsParams) -> Sequence[Stage]:
        return (Stage("result", (), ("summary", "histogram", "edges", "quantiles")),)

    def max_iterations(self, p: StatisticsParams) -> int:
        return DTYPES[p.dtype].item_bytes * 8 // DIGIT_BITS

    def must_converge(self, p: StatisticsParams) -> bool:
        return False

    def has_fixed_length(self, p: StatisticsParams) -> bool:
        return True

    def flops(self, p: StatisticsParams, x: int) -> float:
        return 6.0 * x * math.prod(p.sizes[1:])

    def kernel(self, p: StatisticsParams, context: KernelContext) -> Mapping[str, StageKernel]:
        kernels = _Kernels(p, context.xp)
        return {"moments": kernels.moments, "count": kernels.count, "result": kernels.result}

    def errors(
        self, p: StatisticsParams, inputs: Arrays, outputs: Arrays, rows: Rows, seed: int
    ) -> np.ndarray:
        """Compare everything with NumPy's results for the whole of x."""
        import numpy as np

        x = np.asarray(inputs["x"], np.float64)
        mean, deviation = x.mean(), x.std()
        low, high = _range(p, x.min(), x.max())
        expected = np.array([mean, deviation**2, x.min(), x.max()])
        size = np.array([abs(mean) + deviation, deviation**2, 0, 0])
        allowed = 1e-12 * size + np.finfo(np.float64).tiny
        worst = [(abs(outputs["summary"] - expected) / allowed).max()]
        counts, edges = np.histogram(x, p.bins, (low, high))
        worst.append(abs(counts - outputs["histogram"]).sum() / (2 + 1e-6 * x.size))
        worst.append(abs(edges - outputs["edges"]).max() / (1e-12 * abs(edges).max() + 1e-300))
        quantiles = np.quantile(x, p.fractions)
        worst.append(abs(quantiles - outputs["quantiles"]).max() / allowed[0])
        return np.full(rows.count, np.nan_to_num(max(worst), nan=np.inf))


def merge_moments(parts: Sequence[Any]) -> np.ndarray:
    """Combine (count, mean, sum of squared deviations, minimum, maximum) of parts."""
    import numpy as np

    count, mean, squares, low, high = 0.0, 0.0, 0.0, math.inf, -math.inf
    for more, its_mean, its_squares, its_low, its_high in parts:
        if more:
            total, away = count + more, its_mean - mean
            squares += its_squares + away * away * count * more / total
            count, mean = total, mean + away * more / total
            low, high = min(low, its_low), max(high, its_high)
    return np.array([count, mean, squares, low, high])


def _range(p: StatisticsParams, low: float, high: float) -> tuple[float, float]:
    return (p.low, p.high) if p.low < p.high else (float(low), float(high))


class _Kernels:
    def __init__(self, p: StatisticsParams, xp: Any) -> None:
        self._p, self._xp = p, xp
        self._bits = DTYPES[p.dtype].item_bytes * 8

    def _blocks(self, inputs: Arrays) -> list[Any]:
        flat, size = inputs["x"].reshape(-1), BLOCK[self._xp.__name__]
        return [flat[first : first + size] for first in range(0, len(flat), size)]

    def moments(self, call: StageCall) -> None:
        parts = []
        for x in self._blocks(call.inputs):
            mean = float(x.mean(dtype="float64"))
            squares = float((self._xp.subtract(x, mean, dtype="float64") ** 2).sum())
            parts.append((len(x), mean, squares, float(x.min()), float(x.max())))
        call.partials["moments"][...] = merge_moments(parts)
        call.partials["targets"][:, 1] = self._p.ranks

    def count(self, call: StageCall) -> None:
        """Count digits; in the first pass also the histogram, which later ones hand on."""
        import numpy as np

        moments, before, partials = call.values.now["moments"], call.values.before, call.partials
        if not np.isfinite(moments).all():
            raise DataError("x: values aren't finite, or too large; there are no statistics of it")
        targets = _narrowed(before["targets"], before["digits"])
        is_first = not targets[0, 2]
        targets[:, 2] += 1
        partials["targets"][...] = targets
        partials["histogram"][...] = before["histogram"] if call.rows.is_first else 0
        shift = self._bits - DIGIT_BITS * int(targets[0, 2])
        limits = _range(self._p, moments[3], moments[4])
        for x in self._blocks(call.inputs):
            keys = self._keys(x)
            for prefix in np.unique(targets[:, 0]):
                same = keys if is_first else keys[keys >> (shift + DIGIT_BITS) == int(prefix)]
                digits = (same >> shift) & (DIGITS - 1)
                counts = self._xp.bincount(digits.astype("int64"), minlength=DIGITS)
                partials["digits"][targets[:, 0] == prefix] += _on_host(counts)
            if is_first:
                counts = self._xp.histogram(x.astype("float64"), self._p.bins, limits)[0]
                partials["histogram"][...] += _on_host(counts).astype(np.int64)

    def _keys(self, x: Any) -> Any:
        """Return unsigned integers in the order of the values."""
        bits = x.view(f"uint{self._bits}")
        sign = bits.dtype.type(1 << (self._bits - 1))
        return self._xp.where(bits & sign, ~bits, bits | sign)

    def result(self, call: StageCall) -> None:
        if not call.rows.is_first:
            return
        import numpy as np

        p, now = self._p, call.values.now
        count, mean, squares, low, high = now["moments"].tolist()
        targets = _narrowed(now["targets"], now["digits"])
        keys = targets[:, 0].astype(f"uint{self._bits}")
        sign = keys.dtype.type(1 << (self._bits - 1))
        found = np.where(keys & sign, keys & ~sign, ~keys).view(p.dtype).astype(np.float64)
        below, above = found[::2], found[1::2]
        places = np.array(p.fractions) * (count - 1)
        results = {
            "summary": np.array([mean, squares / count, low, high]),
            "histogram": now["histogram"],
            "edges": np.histogram_bin_edges([], p.bins, _range(p, low, high)),
            "quantiles": below + (above - below) * (places - np.floor(places)),
        }
        for name, values in results.items():
            call.outputs[name][...] = self._xp.asarray(values)


def _narrowed(targets: Any, digits: Any) -> Any:
    targets = targets.copy()
    for target, counts in zip(targets, digits, strict=True):
        if target[2]:
            up_to = counts.cumsum()
            digit = int(up_to.searchsorted(target[1], side="right"))
            target[0] = (int(target[0]) << DIGIT_BITS | digit) - ((int(target[0]) >> 47 & 1) << 64)
            target[1] -= up_to[digit] - counts[digit]
    return targets


def _on_host(array: Any) -> Any:
    return array.get() if hasattr(array, "get") else array
