"""Dispatch of chunks to devices: events in, commands out. Pure."""
