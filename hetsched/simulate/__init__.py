"""Machines that are only curves, driven by the Balancer that the product uses; the papers again.

Pure: no clock, no file. Owns the machines (`curves`), what drives them (`runs`), and the papers'
experiments, one file a paper, each of which gives a `Report`: tables beside the paper's figures,
and charts as numbers. `docs/papers.md` says what was found.
"""
