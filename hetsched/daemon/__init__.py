"""The daemon: a core without I/O, its sockets, start and stop."""
