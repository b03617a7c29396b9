"""Grids of trainings for the tables: resumable cells, their numbers, and what they say about the papers' claims."""
