"""A job in the daemon, from its submission to its end and across restarts. No I/O, except for
publications that a crash has interrupted."""
