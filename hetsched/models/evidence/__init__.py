"""Measurements: which curve each feeds, how certain it is, and changes of speed."""
