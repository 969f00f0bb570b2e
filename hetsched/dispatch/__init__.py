"""Decides which device runs which chunk next: events in, commands out. Pure."""
