"""A grid over many hosts: which host holds which blocks, and how few move when powers change.

All of it is pure: real runs and `python -m hetsched.simulate` share it.
"""

from hetsched.cluster.mapping import (
    Flow,
    Grid,
    Mapping,
    Tree,
    cheapest_flows,
    diffuse,
    quotas,
    rack_tree,
    spanning_tree,
    tree_flows,
)

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
