"""The daemon's client: sessions, shared memory, jobs as Futures."""
