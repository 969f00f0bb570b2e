"""A grid over many hosts: which host holds which blocks, and how few move when powers change.

All of it is pure: real runs and `python -m hetsched.simulate` share it.
"""

from hetsched.cluster.flows import Flow, cheapest_flows, diffuse, tree_flows
from hetsched.cluster.grid import Grid
from hetsched.cluster.mapping import Mapping
from hetsched.cluster.tree import Tree, quotas, rack_tree, spanning_tree

__all__ = [
    "Flow",
    "Grid",
    "Mapping",
    "Tree",
    "cheapest_flows",
    "diffuse",
    "quotas",
    "rack_tree",
    "spanning_tree",
    "tree_flows",
]
