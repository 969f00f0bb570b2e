"""Figures that README and docs claim, measured again by `make bench`.

Every comparison is paired: hetsched and its peers do one repetition each, in turn, so that
whatever else the machine does hits all of them alike. Compare only ratios between machines.
"""
