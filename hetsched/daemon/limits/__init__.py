"""Bounds on what clients can make the daemon keep or log."""
