"""What `hetsched top` shows: keys and answers in, lines of text out. Pure."""
