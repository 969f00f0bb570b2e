"""Writes the velocity of a flow every so many steps: FOLDER/velocity-000500.npy, ...

python -m hetsched_lbm.snapshots FOLDER --rows 120 --cols 400 --flow channel --every 500
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

import numpy as np

import hetsched


def write(folder: Path, steps: int, every: int, mask: np.ndarray | None, **params: Any) -> None:
    """Run `steps` steps as jobs of `every` steps, each from the populations of the one before."""
    folder.mkdir(parents=True, exist_ok=True)
    inputs = {} if mask is None else {"mask": mask}
    with hetsched.Local() as local:
        for first in range(0, steps, every):
            stretch = min(every, steps - first)
            flow = local.submit("lbm", inputs or None, steps=stretch, **params).result()
            np.save(folder / f"velocity-{first + stretch:06}.npy", flow.velocity)
            inputs["start"] = flow.populations


def main() -> None:
    parser = argparse.ArgumentParser(description="Write the velocity of a flow now and then.")
    parser.add_argument("folder", type=Path)
    parser.add_argument("--steps", type=int, default=5000)
    parser.add_argument("--every", type=int, default=500)
    parser.add_argument("--mask", type=Path, help=".npy of solid cells")
    for name, kind in (("rows", int), ("cols", int), ("flow", str), ("reynolds", float)):
        parser.add_argument(f"--{name}", type=kind)
    given = vars(parser.parse_args())
    mask = None if given["mask"] is None else np.load(given["mask"])
    params = {name: value for name, value in given.items() if value is not None}
    write(**{**params, "mask": mask})


if __name__ == "__main__":
    main()
