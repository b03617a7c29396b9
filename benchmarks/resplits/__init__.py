"""Exchangeable re-splits of CIFAR-10: where calibration is judged, and where the recipe is decided.

`trainings` runs on a GPU and keeps outputs, `judge` reads them: tables, the rule, what is missing. The rule and the
targets stand in benchmarks/results/resplits/rule.md, which was written before the trainings.
"""
