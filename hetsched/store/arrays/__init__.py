"""Array files: inputs, outputs that appear complete or not at all, and the ``.npy`` format."""
