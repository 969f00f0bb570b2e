"""Velocities on the centre lines of a lid-driven cavity: Ghia, Ghia & Shin, J. Comput. Phys. 48.

Tables I and II (1982), without the walls. One value is left out, the velocity across at x = 0.9063
for Re = 400: all transcriptions that were compared have -0.23827, between -0.44993 and -0.22847,
where the profiles of every other Reynolds number are smooth. It is known to be doubtful:

* a public transcription of both tables (ivan-pi, 2019) notes at table II that this velocity "is
  probably wrong";
* two other solvers, published with their comparisons, leave the value out, too: one has -0.3818
  there and agrees with all other values of that line to 0.008; a lattice Boltzmann method has
  -0.36265, -0.37522 and -0.37806 with 64, 128 and 256 cells along a side.

No correction by the authors was found, so no other value is put in its place. The benchmark
`cavity` prints what the flow has there: -0.3774 with 128 cells along a side, -0.3775 with 129.
"""

from __future__ import annotations

from typing import Any

import numpy as np

Y = (0.0547, 0.0625, 0.0703, 0.1016, 0.1719, 0.2813, 0.4531, 0.5, 0.6172, 0.7344, 0.8516, 0.9531,
     0.9609, 0.9688, 0.9766)  # fmt: skip
X = (0.0625, 0.0703, 0.0781, 0.0938, 0.1563, 0.2266, 0.2344, 0.5, 0.8047, 0.8594, 0.9063, 0.9453,
     0.9531, 0.9609, 0.9688)  # fmt: skip
X_LEFT_OUT = 0.9063
ALONG = {
    100: (-0.03717, -0.04192, -0.04775, -0.06434, -0.10150, -0.15662, -0.21090, -0.20581,
          -0.13641, 0.00332, 0.23151, 0.68717, 0.73722, 0.78871, 0.84123),
    400: (-0.08186, -0.09266, -0.10338, -0.14612, -0.24299, -0.32726, -0.17119, -0.11477,
          0.02135, 0.16256, 0.29093, 0.55892, 0.61756, 0.68439, 0.75837),
}  # fmt: skip
ACROSS = {
    100: (0.09233, 0.10091, 0.10890, 0.12317, 0.16077, 0.17507, 0.17527, 0.05454, -0.24533,
          -0.22445, -0.16914, -0.10313, -0.08864, -0.07391, -0.05906),
    400: (0.18360, 0.19713, 0.20920, 0.22965, 0.28124, 0.30203, 0.30174, 0.05186, -0.38598,
          -0.44993, np.nan, -0.22847, -0.19254, -0.15663, -0.12146),
}  # fmt: skip


def deviation(velocity: np.ndarray, speed: float, reynolds: int) -> float:
    """Return the largest difference from the tables, over the lid's speed.

    Parameters
    ----------
    velocity : (n, n, 2)
        Along and across the rows; the lid is above the last one.
    """
    centres = _with_walls((np.arange(len(velocity)) + 0.5) / len(velocity), 1)
    along = np.interp(Y, centres, _with_walls(_middle(velocity.swapaxes(0, 1))[:, 0] / speed, 1))
    across = velocity_across(velocity, speed, X)
    first, second = np.abs(along - ALONG[reynolds]), np.abs(across - ACROSS[reynolds])
    return float(max(np.nanmax(first), np.nanmax(second)))


def velocity_across(velocity: np.ndarray, speed: float, x: Any) -> Any:
    """Return the velocity across the rows on the horizontal centre line, over the lid's speed."""
    centres = _with_walls((np.arange(len(velocity)) + 0.5) / len(velocity), 1)
    return np.interp(x, centres, _with_walls(_middle(velocity)[:, 1] / speed, 0))


def _middle(velocity: np.ndarray) -> np.ndarray:
    """Return what is on the line between the first and the second half of the rows."""
    n = len(velocity)
    middle: np.ndarray = (velocity[(n - 1) // 2] + velocity[n // 2]) / 2
    return middle


def _with_walls(values: np.ndarray, last: float) -> np.ndarray:
    return np.concatenate(([0], values, [last]))
