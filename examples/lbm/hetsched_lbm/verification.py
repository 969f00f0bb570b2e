"""A mask for tests, and the check of a flow: whole-array steps with the usual formulas.

The reference takes about 0.3 microseconds per cell and step. Beyond MAX_CELL_STEPS only what must
hold of every row is checked: finite values, speeds below that of sound, solid cells at rest, and
the mass in the whole.
"""

from __future__ import annotations

import numpy as np

from hetsched.workload import Arrays, Rows
from hetsched_lbm import LbmParams
from hetsched_lbm.lattice import DIRECTIONS, OPPOSITE, WEIGHTS

MAX_CELL_STEPS = 5e7
"""Cells x steps that are computed again: about 15 s. Arbitrary."""
ROUNDINGS = 4.0
"""Roundings per step. Measured: below 0.3."""
START_STEPS = 64
"""Steps that are allowed as much before the first one. Arbitrary."""
SOUND = 3**-0.5


def generate(array: str, out: np.ndarray) -> None:
    """Fill the mask with a solid disc of a quarter of the channel's height; start from rest."""
    if array == "start":
        out[...] = 0
        return
    rows, cols = out.shape
    y, x = np.ogrid[:rows, :cols]
    out[...] = (y - rows / 2) ** 2 + (x - cols / 4) ** 2 < (rows / 8) ** 2


def errors(p: LbmParams, inputs: Arrays, outputs: Arrays, rows: Rows) -> np.ndarray:
    """Return the largest error of each row, in roundings that the steps explain."""
    mask, start = inputs.get("mask"), inputs.get("start")
    steps = int(outputs["steps"][0])
    density, velocity = outputs["density"], outputs["velocity"]
    part = slice(rows.first, rows.stop)
    unit = float(np.finfo(p.dtype).eps) * p.speed + float(np.finfo(np.float64).eps)
    allowed = ROUNDINGS * unit * (steps + START_STEPS)
    solid = np.zeros((p.rows, p.cols), bool) if mask is None else mask != 0
    excess = abs(float((density.astype(np.float64) - 1).sum())) / density.size
    if not (1 <= steps <= p.steps and excess <= allowed):
        return np.full(rows.count, np.inf)
    if (f := outputs.get("populations")) is not None:  # those of this density and velocity?
        mass, *momentum = _moments(f[part].transpose(1, 0, 2) + np.reshape(WEIGHTS, (9, 1, 1)))
        momentum[0] = np.where(solid[part], 0, momentum[0] - p.force / 2)
        unlike = [
            abs(mass - density[part]),
            *abs(np.array(momentum) - velocity[part].T.swapaxes(1, 2)),
        ]
        if not (worst := np.max(unlike, axis=(0, 2))).max() <= allowed:
            return np.where(worst <= allowed, 0.0, np.inf)
    if steps * float(density.size) <= MAX_CELL_STEPS:
        expected_density, expected_velocity = reference(p, solid, steps, start)
        worst = np.abs(density[part] - expected_density[part]).max(axis=1)
        difference = np.abs(velocity[part] - expected_velocity[part])
        return np.asarray(np.maximum(worst, difference.max(axis=(1, 2))) / allowed)
    speed = np.sqrt(np.square(velocity[part]).sum(axis=2))
    is_wrong = ~(speed < SOUND) | ~(density[part] > 0) | (solid[part] & (speed != 0))
    return np.where(is_wrong.any(axis=1), np.inf, 0.0)


def reference(
    p: LbmParams, solid: np.ndarray, steps: int, start: np.ndarray | None = None
) -> tuple[np.ndarray, np.ndarray]:
    """Return density and velocity after `steps` steps, in double precision."""
    g, omega = p.force, 1 / p.relaxation_time
    outside = _walled(p, solid)
    inner = (slice(1, -1), slice(1, -1) if p.flow == "cavity" else slice(None))
    f = _at_start(p, outside)
    if start is not None:
        f[:, *inner] = start.transpose(1, 0, 2) + np.reshape(WEIGHTS, (9, 1, 1))
    for _ in range(steps):
        f = _streamed(p, f, outside)
        density, along, across = _moments(f)
        along = along + g / 2
        for i, (w, (x, y)) in enumerate(zip(WEIGHTS, DIRECTIONS, strict=True)):
            cu = x * along + y * across
            equilibrium = 1 + 3 * cu + 4.5 * cu**2 - 1.5 * (along**2 + across**2)
            push = 3 * (x - along) + 9 * cu * x
            f[i] += omega * (w * density * equilibrium - f[i])
            f[i] += (1 - omega / 2) * w * density * g * push
    density, along, across = _moments(f)
    velocity = np.stack((along - g / 2, across), axis=2)
    density[outside], velocity[outside] = 1, 0
    return density[inner], velocity[inner]


def _at_start(p: LbmParams, outside: np.ndarray) -> np.ndarray:
    """Return equilibria of density 1: at rest, or with the speed of an empty channel."""
    y = np.arange(p.rows) + 0.5
    parabola = 4 * p.speed * y * (p.rows - y) / p.rows**2 + p.force / 2
    along = np.zeros(outside.shape)
    if p.flow == "channel":
        along[1:-1] = parabola[:, np.newaxis]
    along[outside] = 0
    f = [
        w * (1 + 3 * x * along + 4.5 * (x * along) ** 2 - 1.5 * along**2)
        for w, (x, _) in zip(WEIGHTS, DIRECTIONS, strict=True)
    ]
    return np.array(f)


def _walled(p: LbmParams, solid: np.ndarray) -> np.ndarray:
    """Return the solid cells with those of the walls around them."""
    columns = (1, 1) if p.flow == "cavity" else (0, 0)
    return np.pad(solid, ((1, 1), columns), constant_values=True)


def _moments(f: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return density and velocity, without forces."""
    density = f.sum(axis=0)
    along = sum(x * f[i] for i, (x, _) in enumerate(DIRECTIONS)) / density
    across = sum(y * f[i] for i, (_, y) in enumerate(DIRECTIONS)) / density
    return density, along, across


def _streamed(p: LbmParams, f: np.ndarray, solid: np.ndarray) -> np.ndarray:
    """Return the populations after they have moved or bounced back."""
    new = np.empty_like(f)
    for i, (w, (x, y)) in enumerate(zip(WEIGHTS, DIRECTIONS, strict=True)):
        moved = np.roll(f[i], (y, x), (0, 1))
        bounced = f[OPPOSITE[i]].copy()
        if p.flow == "cavity" and y < 0:
            bounced[-2] += 6 * w * x * p.speed
        new[i] = np.where(np.roll(solid, (y, x), (0, 1)) | solid, bounced, moved)
    new[:, solid] = np.reshape(WEIGHTS, (9, 1))
    return new
