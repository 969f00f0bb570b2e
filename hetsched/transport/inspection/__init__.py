"""Records of what the daemon tells about itself."""
