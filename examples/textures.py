"""Tells textures apart by the mean power spectra of their rows, by the workload `welch`.

python examples/textures.py textures.png
"""

from __future__ import annotations

import sys

import numpy as np
import skimage.data
from matplotlib.figure import Figure

import hetsched

NAMES = ("brick", "grass", "gravel")
SEGMENT = 128


def main(picture: str) -> None:
    photographs = np.stack([getattr(skimage.data, name)() for name in NAMES]).astype("float32")
    rows = photographs.reshape(-1, photographs.shape[-1])

    with hetsched.Local() as local:
        job = local.submit("welch", rows, nperseg=SEGMENT, verify=True)
        spectra = job.result(timeout=60).reshape(len(NAMES), -1, SEGMENT // 2 + 1).mean(1)
        print(job.explain())

    figure = Figure(figsize=(11, 7), layout="constrained")
    panels = figure.subplot_mosaic([["spectra"] * len(NAMES), NAMES])
    for name, photograph in zip(NAMES, photographs, strict=True):
        panels[name].imshow(photograph, cmap="gray")
        panels[name].set(title=name, xticks=(), yticks=())
    axes = panels["spectra"]
    axes.loglog(np.fft.rfftfreq(SEGMENT)[1:], spectra[:, 1:].T, label=NAMES)
    axes.set(title="mean spectra of the rows", xlabel="cycles per pixel", ylabel="power density")
    axes.legend()
    figure.savefig(picture)

    powers = spectra.sum(1) / SEGMENT
    ratio = np.max(np.abs(powers / photographs.var(axis=2).mean(1) - 1))
    print(f"{picture}: {len(rows)} rows, power off from the variance by {ratio:.2f}")


if __name__ == "__main__":
    main(*sys.argv[1:])
