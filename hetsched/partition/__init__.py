"""Partitioners: a load and models in, integer shares out; and the Balancer. Pure."""

from hetsched.partition.balancing.balancer import Balancer
from hetsched.partition.balancing.phase import Phase
from hetsched.partition.constant import constant
from hetsched.partition.distribution import Distribution
from hetsched.partition.geometric import geometric
from hetsched.partition.optimal import optimal
from hetsched.partition.rounding import round_greedy
from hetsched.partition.smooth import smooth

__all__ = [
    "Balancer",
    "Distribution",
    "Phase",
    "constant",
    "geometric",
    "optimal",
    "round_greedy",
    "smooth",
]
