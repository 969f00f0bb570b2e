"""Iterative jobs on a GPU, which holds its rows in device memory."""
