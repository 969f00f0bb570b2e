"""The pages of segments: their size, and the memory that they are in."""
