"""Devices whose speed is configured, on a virtual or a real clock."""
