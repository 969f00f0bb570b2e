"""Iterative jobs: options of a submission, and results."""
