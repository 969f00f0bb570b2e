"""Device processes as the engine sees them."""
