"""What became of a job and why: records, and the words for people. Pure, without NumPy."""
