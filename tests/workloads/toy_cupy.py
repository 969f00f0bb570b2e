"""NumPy as a stand-in for CuPy: enough of it for the CUDA kernels.

A plan writes as many planes as it was made for, whatever it is given, as cuFFT's do.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import ModuleType
from typing import Any

import numpy as np
import scipy.sparse.linalg


class Toy:
    """What the kernels did: plans made (shape, kind, batch), runs (batch), bytes of work areas."""

    def __init__(self) -> None:
        self.plans: list[tuple[tuple[int, int], str, int]] = []
        self.runs: list[int] = []
        self.areas: list[int] = []
        self.gemms = 0
        self._allocator: Callable[[int], Any] = self.alloc

    def alloc(self, size: int) -> object:
        self.areas.append(size)
        return object()

    @contextmanager
    def using_allocator(self, allocator: Callable[[int], Any]) -> Iterator[None]:
        former, self._allocator = self._allocator, allocator
        yield
        self._allocator = former

    def modules(self) -> dict[str, ModuleType]:
        """Name -> module, for sys.modules."""
        toy = self

        class PlanNd:
            def __init__(
                self, shape: tuple[int, int], inembed: tuple[int, int], istride: int, idist: int,
                onembed: tuple[int, int], ostride: int, odist: int, kind: str, batch: int,
                order: str, last_axis: int, last_size: int | None,
            ) -> None:  # fmt: skip
                assert inembed == onembed == shape
                assert idist == odist == shape[0] * shape[1]
                assert (istride, ostride, order, last_axis, last_size) == (1, 1, "C", 1, None)
                self.shape, self.kind, self.batch = shape, kind, batch
                toy.plans.append((shape, kind, batch))
                self.work_area = toy._allocator(batch * idist * (8 if kind == "C2C" else 16))

            def fft(self, source: np.ndarray, target: np.ndarray, direction: int) -> None:
                toy.runs.append(self.batch)
                assert source.shape == target.shape == (self.batch, *self.shape)
                result = (
                    np.fft.fft2(source)
                    if direction < 0
                    else np.fft.ifft2(source) * (self.shape[0] * self.shape[1])
                )
                target[...] = result

        cupy, cuda, sparse = map(ModuleType, ("cupy", "cupy.cuda", "cupyx.scipy.sparse"))
        cufft, cublas = ModuleType("cupy.cuda.cufft"), ModuleType("cupy.cublas")
        cufft.__dict__.update(
            PlanNd=PlanNd, CUFFT_C2C="C2C", CUFFT_Z2Z="Z2Z", CUFFT_FORWARD=-1, CUFFT_INVERSE=1
        )
        runtime = ModuleType("cupy.cuda.runtime")
        runtime.__dict__.update(getDevice=lambda: 0, streamSynchronize=lambda stream: None)
        cuda.__dict__.update(
            cufft=cufft, runtime=runtime, alloc=self.alloc, using_allocator=self.using_allocator
        )
        cublas.__dict__["gemm"] = self._gemm
        names = {name for name in dir(np) if name[:1] != "_"} - {"vecdot", "repeat"}
        cupy.__dict__.update({name: getattr(np, name) for name in names})
        cupy.__dict__.update(cuda=cuda, cublas=cublas, asnumpy=np.array)
        sparse.__dict__["csr_matrix"] = scipy.sparse.csr_matrix
        return {
            "cupy": cupy, "cupy.cuda": cuda, "cupy.cuda.cufft": cufft, "cupy.cublas": cublas,
            "cupyx": ModuleType("cupyx"), "cupyx.scipy": ModuleType("cupyx.scipy"),
            "cupyx.scipy.sparse": sparse, "cupyx.scipy.sparse.linalg": scipy.sparse.linalg,
        }  # fmt: skip

    def _gemm(
        self, transa: str, transb: str, a: np.ndarray, b: np.ndarray, out: np.ndarray,
        alpha: float, beta: float,
    ) -> None:  # fmt: skip
        assert (transa, transb) == ("N", "N")
        self.gemms += 1
        out[...] = alpha * (a @ b) + beta * out
