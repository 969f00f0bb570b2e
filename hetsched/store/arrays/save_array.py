"""Saves an array in memory as a ``.npy`` file, completely or not at all."""

from __future__ import annotations

import os

import numpy as np

from hetsched.errors import IOFailure
from hetsched.store.arrays.output_files import create_output

MAX_WRITE = 64 << 20
"""Bytes per write: the kernel accepts at most 2 GiB, and Ctrl-C waits until a write has ended."""


def save_array(path: str, array: np.ndarray, force: bool = False) -> None:
    """Write `array` to `path`.

    Raises
    ------
    CantCreate, IOFailure
    """
    values = np.ascontiguousarray(array)
    output = create_output(path, array.shape, values.dtype.str, force)
    try:
        _write(path, output.fd, values.reshape(-1).view(np.uint8).data, output.offset)
        output.publish()
    finally:
        output.discard()


def _write(path: str, fd: int, data: memoryview, offset: int) -> None:
    written = 0
    try:
        while written < len(data):
            block = data[written : written + MAX_WRITE]
            written += os.pwrite(fd, block, offset + written)
    except OSError as error:
        raise IOFailure(f"{path}: {error.strerror}") from None
