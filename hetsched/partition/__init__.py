"""Partitioners: a load and models in, integer shares out; and the Balancer. Pure."""

from hetsched.partition.balancer import Balancer, Phase
from hetsched.partition.discrete import optimal
from hetsched.partition.distribution import Distribution
from hetsched.partition.equal_times import constant, geometric, round_greedy
from hetsched.partition.root_finding import smooth

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
