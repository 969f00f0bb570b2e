"""The daemon: sessions and requests of clients, its sockets, start and stop."""
