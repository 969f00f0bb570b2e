"""The daemon: a core without I/O, its sockets, its life."""
