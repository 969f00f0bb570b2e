"""Kinds of devices behind one interface, one folder each; `probe` finds them."""
