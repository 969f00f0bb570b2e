"""Explicit measurements: equal plans, and the schedule of sizes to measure."""
