"""Grids of trainings for the tables: resumable cells, their numbers, and what they say about the papers' claims."""

from confide.bench.plan import Cell as Cell
from confide.bench.plan import Method as Method
from confide.bench.plan import Setting as Setting
from confide.bench.scales import lite_cells as lite_cells
from confide.bench.work import Outcome as Outcome
from confide.bench.work import Place as Place
from confide.bench.work import run_grid as run_grid
from confide.bench.work import standing as standing
