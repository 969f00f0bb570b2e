"""Curves of one phase of a chunk: a copy or a kernel call behind a link."""
