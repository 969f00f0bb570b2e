"""Requests about the daemon itself."""
