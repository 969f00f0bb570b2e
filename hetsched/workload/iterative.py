"""The protocol of iterative workloads: solvers and simulations on data that stay in place.

An iteration is a sequence of stages. In each stage every device computes its own rows of the
stage's outputs; it may read other rows of the inputs, as they were after the stage before. Between
two stages all devices wait for each other, and partial results are combined (the supersteps of
Valiant's bulk-synchronous model, CACM 33(8), 1990).
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Generic, Literal, NamedTuple, TypeVar

from hetsched.memory import MemoryDemand
from hetsched.workload.protocol import Arrays, BaseWorkload, array_bytes

if TYPE_CHECKING:
    import numpy as np

Border = Literal["fixed", "periodic", "reflect"]
"""What lies beyond the first and the last row: `fixed` rows that never change, the rows of the
opposite edge (`periodic`), or the mirror image of the rows at this edge (`reflect`)."""
Combine = Literal["sum", "max", "min"] | Callable[[Sequence[Any]], Any]
"""How partial results of the devices, given in the order of their rows, become one."""


@dataclass(frozen=True)
class Rows:
    """The rows `first` up to, but not including, `stop`, of `load`."""

    first: int
    stop: int
    load: int

    @property
    def count(self) -> int:
        return self.stop - self.first

    @property
    def is_first(self) -> bool:
        return self.first == 0

    @property
    def is_last(self) -> bool:
        return self.stop == self.load


@dataclass(frozen=True)
class StateArray:
    """An array of shape (load, *unit_shape) that lives as long as the job.

    Attributes
    ----------
    halo : int, rows
        How many rows before and after its own ones a device reads. Kernels get these with their
        own rows: (halo + count + halo, *unit_shape).
    border : Border
        The rows beyond the edges; only with a halo.
    border_value : float
        Of `fixed` border rows, which are written once, before the first stage.
    has_two_buffers : bool
        An iteration reads the values of the previous iteration (its input of this name) while it
        writes new ones (its output of this name), so that it can be repeated. An array with one
        buffer is scratch: each iteration writes it before it reads it.
    is_whole : bool
        Kernels read all rows: (load, *unit_shape).
    result : str
        The output of the same shape to which `finish` copies these rows, if there is one. In jobs
        of fixed length it is not copied: the output is these rows, in this array's memory.
    """

    name: str
    unit_shape: tuple[int, ...]
    dtype: str
    halo: int = 0
    border: Border = "fixed"
    border_value: float = 0.0
    has_two_buffers: bool = True
    is_whole: bool = False
    result: str = ""


@dataclass(frozen=True)
class Reduction:
    """A value that all devices compute together, of the same size whatever their rows.

    Attributes
    ----------
    combine : "sum", "max", "min" or callable
        A callable gets the partial arrays of all devices with rows, in the order of their rows, so
        the result doesn't depend on which device was first.
    """

    name: str
    shape: tuple[int, ...] = ()
    dtype: str = "float64"
    combine: Combine = "sum"


@dataclass(frozen=True)
class Values:
    """Combined reductions: name -> array.

    Attributes
    ----------
    now : mapping
        As of the last stage that computed them.
    before : mapping
        As of the end of the previous iteration, also when an iteration is repeated.
    """

    now: Mapping[str, np.ndarray] = field(default_factory=dict)
    before: Mapping[str, np.ndarray] = field(default_factory=dict)


@dataclass(frozen=True)
class Blocks:
    """How hosts cut the grid of a simulation into rectangles that each advances on its own.

    A rectangle is a job of its own, with as many cells of its neighbours around it as steps it
    takes times `reach`; what becomes of these is thrown away. So beyond the edges of a rectangle
    may be anything, but at the edges of the grid, which aren't framed, it is as in the whole grid.

    Attributes
    ----------
    axes : mapping
        Input or output -> which of its axes are the grid's. Arrays without aren't cut.
    state : mapping
        The input from which a simulation goes on -> the output that is its later value: the
        `result` of a state array.
    periodic : (bool, bool)
        Whether opposite edges are neighbours, along each axis of the grid.
    params : mapping
        Of a rectangle's job, without its size and steps.
    begin : callable, optional
        Return name -> array of those in `state` that a job begins with, if they aren't given.
    steps : str
        The parameter that is the number of steps. Outputs without axes are this number.
    """

    axes: Mapping[str, tuple[int, int]]
    state: Mapping[str, str]
    periodic: tuple[bool, bool]
    params: Mapping[str, Any]
    begin: Callable[[Arrays], Mapping[str, Any]] | None = None
    steps: str = "steps"
    reach: int = 1

    def complete(self, inputs: Arrays) -> dict[str, Any]:
        """Return the inputs with those that a job begins with, if they aren't given."""
        if self.begin is None or self.state.keys() <= inputs.keys():
            return dict(inputs)
        return {**inputs, **self.begin(inputs)}


class StageCall(NamedTuple):
    """What a kernel computes: one stage on some rows, never on none.

    Attributes
    ----------
    inputs : mapping
        Own rows of split arrays, with their halo if they have one; all of resident and whole ones,
        but of those with pointers the entries of own rows.
    outputs : mapping
        Own rows, without halo; of whole-out arrays all, but only for the device that has the first
        row (`rows.is_first`).
    partials : mapping
        Name -> array of the reduction's shape, zero at first, which the kernel fills.
    """

    rows: Rows
    inputs: Arrays
    outputs: Arrays
    values: Values
    partials: Arrays


Value = TypeVar("Value")


class RowCache(Generic[Value]):
    """Values by range of rows, which kernels derive and keep from iteration to iteration.

    No two ranges overlap, so all values together are at most as large as those of the whole load.
    Those of rows that moved away stay, in case the rows come back.
    """

    def __init__(self) -> None:
        self._values: dict[tuple[int, int], Value] = {}

    def get(self, first: int, stop: int, make: Callable[[], Value]) -> Value:
        """Return the value of the rows `first` up to `stop`, made by `make` if there is none."""
        key = (first, stop)
        if key not in self._values:
            for other in list(self._values):
                if other[0] < stop and first < other[1]:
                    del self._values[other]
            self._values[key] = make()
        return self._values[key]


StageKernel = Callable[[StageCall], None]
"""Computes a stage, without NumPy's warnings of overflows and NaN.

None of the arrays may be kept after the call. Raises DataError if the data make the method
impossible.
"""


@dataclass(frozen=True)
class Stage:
    """What happens between two moments at which all devices wait for each other.

    Attributes
    ----------
    inputs, outputs : tuple of str
        Names of arrays that the kernel reads and writes. Nothing that one device writes may be
        read by another one in the same stage, except the previous values of an array with two
        buffers.
    reductions : tuple of str
        What is combined after the stage. Each reduction belongs to one stage of an iteration.
    """

    name: str
    inputs: tuple[str, ...]
    outputs: tuple[str, ...] = ()
    reductions: tuple[str, ...] = ()


class Iterative(BaseWorkload):
    """A load of rows that all devices compute again and again, each its own part.

    The first axis of arrays with the roles "split" and "out" counts rows; resident and whole-out
    ones may have any shape. `Variant.make(p, load, context)` returns a mapping: name of a stage ->
    StageKernel. Iterations count from 1; `start` is iteration 0. Every method is pure.

    Attributes
    ----------
    state_version : int
        To be increased when the state gets another meaning: checkpoints of other versions are
        refused.
    limits : tuple of str
        The parameters that only determine when iterations end. A job that continues from a
        checkpoint may change them.
    """

    state_version: int = 1
    limits: tuple[str, ...] = ("iterations", "max_iterations", "steps", "tolerance")

    @abstractmethod
    def state(self, p: Any) -> Sequence[StateArray]:
        """Return the arrays that are neither inputs nor outputs."""

    @abstractmethod
    def reductions(self, p: Any) -> Sequence[Reduction]:
        """Return all reductions."""

    @abstractmethod
    def start(self, p: Any) -> Sequence[Stage]:
        """Return the stages before the first iteration, which also check the data.

        There is no previous iteration: an array with two buffers is read as written last.
        """

    @abstractmethod
    def iteration(self, p: Any) -> Sequence[Stage]:
        """Return the stages of an iteration."""

    def finish(self, p: Any) -> Sequence[Stage]:
        """Return the stages after the last iteration, which write the outputs.

        They must be valid after any iteration: a checkpoint or a stop may follow it.
        """
        return ()

    def start_rounds(self, p: Any) -> int:
        """Return how often the stages of `start` run, one round after the other."""
        return 1

    @abstractmethod
    def max_iterations(self, p: Any) -> int:
        """Return the number of iterations after which the job ends in any case."""

    def converged(self, p: Any, values: Values) -> bool:
        """Return whether the iteration that led to `values` was the last one.

        Raises
        ------
        DataError
            The method can't continue.
        """
        return False

    def must_converge(self, p: Any) -> bool:
        """Return whether a job that ends by `max_iterations` has failed."""
        return True

    def has_fixed_length(self, p: Any) -> bool:
        """Return whether iterations never end before `max_iterations`.

        Then it is known from the start how much work there is, and a GPU stores its rows less
        often.
        """
        return False

    def residual(self, p: Any, values: Values) -> float:
        """Return what shall become small, for progress reports; NaN if there is no such number.

        Infinity means that the method diverges: the job fails.
        """
        return float("nan")

    def blocks(self, p: Any) -> Blocks | None:
        """Return how a cluster's hosts cut the grid; None: it stays whole, on one host."""
        return None

    def granule(self, p: Any) -> int:
        """Return the number of rows that are never divided between devices."""
        return 1

    @property
    def can_verify(self) -> bool:
        return type(self).errors is not Iterative.errors

    def errors(self, p: Any, inputs: Arrays, outputs: Arrays, rows: Rows, seed: int) -> np.ndarray:
        """Return the error of each of `rows` of the result, (count,) float64; 1 is just correct.

        `inputs` and `outputs` are whole arrays. NaN counts as wrong.
        """
        raise NotImplementedError

    def demand(self, p: Any, kind: str) -> MemoryDemand:
        """Return the bytes of rows on a device that holds them: inputs, state and outputs.

        Of arrays with pointers a row has the average; a device counts those of its own rows.
        """
        arrays = self.arrays(p)
        rows = [a for a in arrays if not a.is_whole]
        by_row = sum(array_bytes(a) for a in arrays if a.pointers)
        whole = sum(array_bytes(a) for a in arrays if a.is_whole and not a.pointers)
        inputs = sum(array_bytes(a) for a in rows if a.is_input) + by_row / self.load(p)
        outputs = sum(array_bytes(a) for a in rows if a.is_output)
        work = 0
        for array in self.state(p):
            nbytes = array_bytes(array) * (2 if array.has_two_buffers else 1)
            if array.is_whole:
                whole += nbytes * self.load(p)
            else:
                work += nbytes
        return MemoryDemand(
            input_bytes=inputs, work_bytes=work, output_bytes=outputs, resident_bytes=whole
        )
