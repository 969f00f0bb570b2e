"""Measuring on purpose: equal plans, and the schedule of sizes to measure."""
