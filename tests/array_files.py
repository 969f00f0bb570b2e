"""An array in files of all formats, as their own libraries write them, and broken files."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import numpy as np
from libraries import library

h5py, tifffile, zarr = map(library, ("h5py", "tifffile", "zarr"))
RNG = np.random.default_rng(0)
X = RNG.standard_normal((50, 20, 30)).astype("float32")


def npy(folder: Path) -> Any:
    np.save(folder / "x.npy", X)
    return folder / "x.npy"


def zarr_file(folder: Path) -> Any:
    zarr.create_array(str(folder / "x.zarr"), data=X, chunks=(7, 20, 10))
    return str(folder / "x.zarr")


def zarr_2(folder: Path) -> Any:
    array = zarr.create_array(
        str(folder / "old.zarr"), shape=X.shape, chunks=(7, 9, 30), dtype=X.dtype, zarr_format=2
    )
    array[:] = X
    return folder / "old.zarr"


def hdf5(folder: Path) -> Any:
    with h5py.File(folder / "x.h5", "w") as file:
        file.create_dataset("images", data=X, chunks=(6, 20, 30), compression="gzip")
        file.create_dataset("others", data=X)
    return f"{folder / 'x.h5'}:images"


def plain_hdf5(folder: Path) -> Any:
    with h5py.File(folder / "p.h5", "w", userblock_size=512) as file:
        file.create_dataset("images", data=X.astype(">f4"))
    return folder / "p.h5"


def tiff(folder: Path) -> Any:
    tifffile.imwrite(folder / "x.tif", X)
    return folder / "x.tif"


def compressed_tiff(folder: Path) -> Any:
    tifffile.imwrite(folder / "c.tif", X, compression="zlib", photometric="minisblack")
    return folder / "c.tif"


def raw(folder: Path) -> Any:
    (folder / "x.bin").write_bytes(b"head" + X.astype(">f4").tobytes())
    return f"{folder / 'x.bin'}:>f4:50x20x30:4"


SOURCES = [npy, raw, zarr_file, zarr_2, hdf5, plain_hdf5, tiff, compressed_tiff]


def read(path: Path, dtype: str = "float32") -> np.ndarray:
    match path.suffix:
        case ".npy":
            return np.asarray(np.load(path))
        case ".raw":
            return np.fromfile(path, dtype).reshape(X.shape)
        case ".zarr":
            return np.asarray(zarr.open_array(str(path), mode="r"))
        case ".tif":
            return np.asarray(tifffile.imread(path))
    with h5py.File(path) as file:
        return np.asarray(file["data"])


def header(text: str, magic: bytes = b"\x93NUMPY\x01\x00") -> bytes:
    return magic + len(text).to_bytes(2, "little") + text.encode()


def described(descr: str, shape: str, order: str = "False") -> bytes:
    return header(f"{{'descr': {descr}, 'fortran_order': {order}, 'shape': {shape}}}\n") + b"1234"


BROKEN_NPY = {
    "empty": b"",
    "text": b"hello",
    "magic": b"\x93NUMPY",
    "version": header("{}", b"\x93NUMPY\x09\x00"),
    "cut": b"\x93NUMPY\x01\x00v\x00{'descr': '<f4', 'fortran_order': False, 'shape': (9",
    "length": b"\x93NUMPY\x02\x00\xff\xff\xff\xff{}",
    "code": header("__import__('os').abort()\n"),
    "keys": header("{'descr': '<f4'}\n"),
    "more keys": header("{'descr': '<f4', 'fortran_order': False, 'shape': (1,), 'a': 1}\n"),
    "nested": header("[" * 3000),
    "short": described("'<f4'", "(2,)"),
    "huge": described("'<f4'", "(1000000000000,)"),
    "overflow": described("'<f8'", "(4611686018427387904, 4)"),
    "negative": described("'<f4'", "(-1,)"),
    "negative twice": described("'<f4'", "(-1, -1)"),
    "fraction": described("'<f4'", "(0.5,)"),
    "shape": described("'<f4'", "'1'"),
    "dtype": described("'<q9'", "(1,)"),
    "no dtype": described("None", "1"),
    "order": described("'<f4'", "(1,)", "'C'"),
    "object": described("'|O'", "(1,)"),
    "objects": described("[('a', '|O')]", "(1,)"),
}


def zarr_record(**changes: Any) -> bytes:
    record = {
        "zarr_format": 2, "shape": [4], "chunks": [2], "dtype": "<f4", "order": "C",
        "fill_value": 0, "compressor": None, "filters": None,
    }  # fmt: skip
    return json.dumps({**record, **changes}).encode()


BROKEN_ZARR = {
    "empty": b"",
    "text": b"hello",
    "list": b"[]",
    "keys": b"{}",
    "nested": b"[" * 100_000,
    "cut": zarr_record()[:-9],
    "format": zarr_record(zarr_format=7),
    "dtype": zarr_record(dtype="<q9"),
    "object": zarr_record(dtype="|O"),
    "pickle": zarr_record(dtype="|O", filters=[{"id": "pickle"}]),
    "negative": zarr_record(shape=[-4]),
    "text as shape": zarr_record(shape="four"),
    "chunks": zarr_record(chunks=[2, 2]),
    "no chunks": zarr_record(chunks=[0]),
    "codec": zarr_record(compressor={"id": "none-such"}),
}
TAILS = (0, 4, 8, 100, 600)
"""Bytes that are left of a file that was cut."""


BROKEN_RAW = (
    ":f4:3",
    ":f4:2:1",
    ":q9:1",
    ":O:1",
    ":f4:9999999999999999999999",
    ":U1:2",
    ":V8:1",
    "",
)
HOSTILE = (
    [(".npy", name) for name in BROKEN_NPY]
    + [(".zarr", name) for name in BROKEN_ZARR]
    + [(".raw", layout) for layout in BROKEN_RAW]
    + [(kind, tail) for kind in (".h5", ".tif") for tail in TAILS]
)


def hostile_file(folder: Path, kind: str, what: Any) -> str:
    """Make a file that is broken as `what` says; return its path."""
    path = folder / f"x{kind}"
    if kind == ".npy":
        path.write_bytes(BROKEN_NPY[what])
    elif kind == ".zarr":
        path.mkdir()
        (path / ".zarray").write_bytes(BROKEN_ZARR[what])
    elif kind == ".raw":
        path.write_bytes(b"12345678")
        return f"{path}{what}"
    elif kind == ".h5":
        os.truncate(hdf5(folder).rpartition(":")[0], what)
    else:
        os.truncate(tiff(folder), what)
    return str(path)
