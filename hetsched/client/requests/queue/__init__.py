"""Requests that change or list the queue."""
