"""Decisions by cost: what to do with every sample, whom to ask, and what it costs."""

from confide.decisions.rules import (
    ASK as ASK,
    DecisionRule as DecisionRule,
    Decisions as Decisions,
    cost_matrix as cost_matrix,
    decide as decide,
    load as load,
)
