"""Watch a deployed classifier: accuracy without labels, drift, and alarms on its promises, readable at any time."""

from confide.monitor.alarms import Wealth, risk_bets
from confide.monitor.estimates import AccuracyEstimate, CalibrationEstimate, Drift, WatchBatch, WatchReference
from confide.monitor.page import write_page
from confide.monitor.watch import Alarm, BatchReport, Monitor

__all__ = [
    "AccuracyEstimate",
    "Alarm",
    "BatchReport",
    "CalibrationEstimate",
    "Drift",
    "Monitor",
    "WatchBatch",
    "WatchReference",
    "Wealth",
    "risk_bets",
    "write_page",
]
