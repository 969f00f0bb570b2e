"""The engine's side of device processes."""
