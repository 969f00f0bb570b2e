"""Iterative jobs in the engine: their arrays, epochs, iterations and first split."""
