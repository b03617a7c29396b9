"""The evidence: grids of trainings, the papers' tables and claims, speed beside peers. `python -m benchmarks`."""

from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
"""The checkout: its README, docs and benchmarks/results are what the evidence is written into."""
