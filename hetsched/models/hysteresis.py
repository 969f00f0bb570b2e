"""Whether another split is worth leaving the present one for: models are made of noisy runs.

A split that is found anew after each run follows the noise of the last one. What it promises is
the least that the models allow, so that it seems better than the present one even if it isn't
(Smith & Winkler, The Optimizer's Curse, Management Science 52, 2006): a small gain is no gain.
"""

from __future__ import annotations

from hetsched.models.checks import not_negative

MARGIN = 0.025
"""A split must promise to be faster by this to be left for: as much as a well-known time may be
off (`evidence.NARROW`), and about the most that staying costs."""


def worth_moving(present: float, predicted: float, margin: float = MARGIN) -> bool:
    """Whether a split is so much faster that it is to be followed instead of the present one.

    Parameters
    ----------
    present, predicted : float, seconds
        Makespans of the present and of the other split, both by the same models: what the last
        run took is a single sample.
    margin : float
        Relative gain below which the present split stays.

    Raises
    ------
    UsageError
        A negative, infinite or undefined number.
    """
    now = not_negative("present", present, " s")
    then = not_negative("predicted", predicted, " s")
    return then < now * (1 - not_negative("margin", margin))
