"""One file per request, named like the daemon's file for it."""
