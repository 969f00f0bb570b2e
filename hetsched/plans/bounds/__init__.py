"""Lower bounds on the time of a device's plans."""
