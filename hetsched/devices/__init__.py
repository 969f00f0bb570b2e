"""Kinds of devices behind one seam, one folder each; `registry` lists them."""
