"""Array files: inputs, outputs that appear whole or not at all, and the ``.npy`` format."""
