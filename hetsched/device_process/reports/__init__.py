"""What a device process tells the engine of finished chunks and of failures."""
