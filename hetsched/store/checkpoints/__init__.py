"""Checkpoints of iterative jobs: ``.npz`` files that `numpy.load` reads, with a JSON record."""
