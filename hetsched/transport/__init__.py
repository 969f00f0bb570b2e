"""Messages, sockets, shared memory and the event loop."""
