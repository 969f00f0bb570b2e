"""Evidence: which measurement goes into which curve, its confidence, and changes of speed."""
