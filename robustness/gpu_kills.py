"""SIGKILL of a GPU's process at random moments of iterative jobs, with rows that only it has.

The GPU is the fake one of the tests under the real device's code. The other devices go back to
what was saved, which is as rarely as may be: just enough for the bar on repeated work.

`python -m robustness.gpu_kills serve` is the daemon: its only GPU is the fake one of
`tests/devices`, which has the real device's code and the variants of cores.
"""

from __future__ import annotations

import sys
from pathlib import Path

import msgspec

from benchmarks.results import Result
from hetsched.cli import main as cli
from hetsched.device_kinds import DEVICE_KINDS
from robustness.counted_solvers import RARE_SAVES
from robustness.daemon import ROOT
from robustness.iteration_kills import Machine, kill_often
from robustness.scale import Scale

MACHINE = Machine(
    """
[[device]]
kind = "cpu"

[[device]]
kind = "gpu"
""",
    {
        "PYTHONPATH": f"{ROOT}:{Path(ROOT) / 'tests' / 'devices'}",
        RARE_SAVES: "1",
    },
    module="robustness.gpu_kills",
    victim="gpu0",
)


def measure(scale: Scale) -> Result:
    columns = (
        "solver",
        "kills",
        "with rows lost",
        "after the end",
        "wrong",
        "failed",
        "repeated iterations, most",
    )
    title = "SIGKILL of a GPU's process during iterative jobs"
    kills = scale.of(1, 40, 100)
    return kill_often(Result("gpu_kills", title, columns), MACHINE, scale, kills)


if __name__ == "__main__":
    DEVICE_KINDS["cuda"] = msgspec.structs.replace(
        DEVICE_KINDS["cuda"], package="fake_gpu", variant_kind="cpu"
    )
    sys.exit(cli.main())
