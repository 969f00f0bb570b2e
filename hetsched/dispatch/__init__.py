"""Which device gets which chunk next: events in, commands out. Pure."""
