"""Real input without a download: crops of the photographs in the scikit-image wheel.

Every photograph of at least 512x512 is cut into 512x512 crops at intervals of 256, so that
neighbours overlap by half; each channel of a colour photograph is a plane. Identical crops are
included once. The result is one ``.npy`` of shape (planes, 512, 512), and beside it a ``.txt``,
with a line for the photograph of each plane.

    python examples/photographs.py photographs.npy
"""

from __future__ import annotations

import hashlib
import importlib.util
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
from PIL import Image

SIDE = 512
STRIDE = 256
ENOUGH = 64
SUFFIXES = {".png", ".jpg"}


def folder() -> Path:
    """Return the wheel's folder of pictures, without importing skimage, which takes a second."""
    spec = importlib.util.find_spec("skimage")
    if spec is None or spec.origin is None:
        raise SystemExit("scikit-image isn't installed; pip install 'hetsched[demo]'")
    return Path(spec.origin).parent / "data"


def channels(path: Path) -> Iterator[np.ndarray]:
    """Return the planes of a picture, (rows, cols) uint8: one if it is grey, else three."""
    with Image.open(path) as picture:
        mode = "L" if picture.mode in ("1", "L", "LA") else "RGB"
        pixels = np.asarray(picture.convert(mode))
    if pixels.ndim == 2:
        yield pixels
    else:
        yield from np.moveaxis(pixels, -1, 0)


def crops(plane: np.ndarray) -> Iterator[np.ndarray]:
    """Return all SIDE x SIDE pieces of `plane` at multiples of STRIDE."""
    rows, cols = plane.shape
    for row in range(0, rows - SIDE + 1, STRIDE):
        for col in range(0, cols - SIDE + 1, STRIDE):
            yield plane[row : row + SIDE, col : col + SIDE]


def photographs() -> tuple[np.ndarray, list[str]]:
    """Return all distinct crops, (planes, SIDE, SIDE) complex64, and the picture of each."""
    kept: dict[bytes, tuple[np.ndarray, str]] = {}
    for path in sorted(folder().iterdir()):
        if path.suffix in SUFFIXES:
            for plane in channels(path):
                for crop in crops(plane):
                    kept.setdefault(hashlib.sha256(crop.tobytes()).digest(), (crop, path.stem))
    if len(kept) < ENOUGH:  # this version of scikit-image has other pictures
        raise SystemExit(f"{folder()}: {len(kept)} distinct crops, needs {ENOUGH}")
    planes = np.stack([crop for crop, _ in kept.values()]).astype("complex64")
    return planes, [name for _, name in kept.values()]


def main(output: Path) -> None:
    planes, names = photographs()
    np.save(output, planes)
    output.with_suffix(".txt").write_text("".join(f"{name}\n" for name in names))
    size = planes.nbytes / 2**20
    print(f"{output}: {len(planes)} planes of {len(set(names))} photographs, {size:.0f} MiB")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
