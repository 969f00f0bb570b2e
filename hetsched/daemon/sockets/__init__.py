"""Sockets of clients beside ZeroMQ: sessions, and the requests of Python clients."""
