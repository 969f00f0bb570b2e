"""Lower bounds: no plan of one device is faster."""
