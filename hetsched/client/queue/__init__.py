"""Options and operations of the client that concern the queue."""
