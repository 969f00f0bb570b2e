"""Kinds of devices behind one interface, one folder each; `registry` lists them."""
