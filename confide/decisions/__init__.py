"""Decisions by cost: what to do with every sample, whom to ask, and what it costs."""

from confide.decisions.rules import ASK, DecisionRule, Decisions, cost_matrix, decide, load
