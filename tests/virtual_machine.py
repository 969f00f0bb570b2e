"""A core and a device behind a link, whose clocks are computed: jobs take no time to speak of."""

VIRTUAL = """
[[device]]
kind = "emulated"
name = "core0"
clock = "virtual"
compute = { gap = "30us", rate = "0.5Gflop/s" }

[[device]]
kind = "emulated"
name = "emu0"
clock = "virtual"
memory = "1MiB"
compute = { gap = "40us", rate = "1.5Gflop/s" }
h2d = { gap = "10us", rate = "1GB/s" }
d2h = { gap = "10us", rate = "1GB/s" }
"""
