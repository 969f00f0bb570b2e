"""The D2Q9 lattice, and collisions as a product with a matrix.

Populations are stored less their values w at density 1 and rest, which keeps float32 accurate.
With rho = 1 + sum f, rho u = sum c f + rho g / 2 (g: acceleration), a collision is linear in 16
numbers: f, 1, rho - 1, rho u, rho u u. The equilibrium is

    f_eq = w (rho - 1 + 3 c.rho u + 9/2 (c.u)(c.rho u) - 3/2 u.rho u)

and a force adds (1 - omega / 2) w g (3 c_x rho - 3 rho u_x + 9 c_x c.rho u).
"""

from __future__ import annotations

import numpy as np

from hetsched.errors import DataError
from hetsched.workload import Rows
from hetsched_lbm import LbmParams

DIRECTIONS = ((0, 0), (1, 0), (0, 1), (-1, 0), (0, -1), (1, 1), (-1, 1), (-1, -1), (1, -1))
"""(along a row, across the rows) of each population."""
WEIGHTS = (4 / 9, 1 / 9, 1 / 9, 1 / 9, 1 / 9, 1 / 36, 1 / 36, 1 / 36, 1 / 36)
OPPOSITE = (0, 3, 4, 1, 2, 7, 8, 5, 6)


def start_speeds(p: LbmParams, rows: Rows) -> np.ndarray:
    """Return the speed along the channel of each row of a flow at its start, (count,)."""
    y = np.arange(rows.first, rows.stop) + 0.5
    return p.speed * (4 * y * (p.rows - y) / p.rows**2) * (p.flow == "channel")


def equilibrium(p: LbmParams, rows: Rows) -> np.ndarray:
    """Return the populations of each row at the start, (count, 9), after a step of the force."""
    along = (start_speeds(p, rows) + p.force / 2)[:, np.newaxis]
    w, x = np.array(WEIGHTS), np.array(DIRECTIONS, np.float64)[:, 0]
    populations: np.ndarray = w * (3 * x * along + (4.5 * x * x - 1.5) * along**2)
    return populations


def start(p: LbmParams, mask: np.ndarray | None) -> np.ndarray:
    """Return the populations of the whole flow at the start, (rows, 9, cols).

    Raises
    ------
    DataError
        All cells are solid.
    """
    if mask is not None and mask.all():
        raise DataError("mask: all cells are solid")
    each = equilibrium(p, Rows(0, p.rows, p.rows)).astype(p.dtype)
    populations = np.repeat(each[:, :, np.newaxis], p.cols, axis=2)
    if mask is not None:
        populations *= (np.asarray(mask) == 0)[:, np.newaxis]
    return populations


def moment_matrix() -> np.ndarray:
    """Return the matrix of rho - 1 and of rho u without the force, (3, 9)."""
    c = np.array(DIRECTIONS, np.float64)
    return np.vstack((np.ones(9), c[:, 0], c[:, 1]))


def collision_matrix(p: LbmParams) -> np.ndarray:
    """Return the matrix of populations after a collision, (9, 16).

    Columns: 9 populations, 1, rho - 1, rho u_x, rho u_y, rho u_x^2, rho u_x u_y, rho u_y^2.
    """
    omega, g = 1 / p.relaxation_time, p.force
    x, y = np.array(DIRECTIONS, np.float64).T
    w = np.array(WEIGHTS)
    matrix = np.zeros((9, 16))
    matrix[:, :9] = (1 - omega) * np.eye(9)
    matrix[:, 10] = omega * w
    matrix[:, 11], matrix[:, 12] = omega * 3 * w * x, omega * 3 * w * y
    matrix[:, 13] = omega * w * (4.5 * x * x - 1.5)
    matrix[:, 14] = omega * w * 9 * x * y
    matrix[:, 15] = omega * w * (4.5 * y * y - 1.5)
    source = (1 - omega / 2) * g * w
    matrix[:, 9] += source * 3 * x
    matrix[:, 10] += source * 3 * x
    matrix[:, 11] += source * (9 * x * x - 3)
    matrix[:, 12] += source * 9 * x * y
    return matrix
