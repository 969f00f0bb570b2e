"""A grid over many hosts: which host holds which blocks, and how few move when powers change.

All of it is pure: real runs and `python -m hetsched.simulate` share it.
"""
