"""The daemon: a core without I/O, its sockets, start-up and shutdown."""
