"""Machines that consist of speed functions, driven by the product's own Balancer and planner.

Pure: no clock, no file. Owns the machines (`curves`, `machine`, `profile`), what drives them
(`runs`, `learning`) and the experiments of the papers, one file per paper. Each experiment returns
an `ExperimentResult`: tables beside the paper's figures, and charts as numbers. `docs/papers.md`
sums up the outcomes.
"""
