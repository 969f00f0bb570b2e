"""Races: which variants take turns on equal cores in a run, by which chunks, and the results."""
