"""Watch a deployed classifier: accuracy without labels, drift, and alarms on its promises, readable at any time."""

from confide.monitor.estimates import Drift, Estimate, Reference
from confide.monitor.page import write_page
from confide.monitor.watch import Alarm, BatchReport, Monitor

__all__ = ["Alarm", "BatchReport", "Drift", "Estimate", "Monitor", "Reference", "write_page"]
