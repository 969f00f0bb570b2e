"""Simulated machines made of speed functions, driven by the product's Balancer and planner.

Pure: no clock, no file. Owns the machines (`curves`, `machine`, `profile`), their drivers (`runs`,
`learning`) and the experiments of the papers, one file per paper. Each experiment returns an
`ExperimentResult`: tables with the paper's figures for comparison, which `__main__` prints.
`docs/papers.md` summarises the outcomes.
"""
