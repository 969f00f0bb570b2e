"""Reproduces the figures in README and docs; run by `make bench`.

Every comparison is paired: hetsched and its peers run one repetition each, in turn, so that other
load on the machine affects all of them alike. Compare only ratios between machines.
"""
