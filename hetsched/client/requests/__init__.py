"""One file per request, of the same name as the daemon's."""
