"""Labels called wrong, counted against the truth."""

from types import SimpleNamespace

import numpy as np

from benchmarks.label_errors.verdicts import UNDOUBTED, Cell, Outcome, counted, page


def test_samples_left_out_count_neither_as_listed_nor_as_wrong():
    true, labels = np.zeros(10, dtype=int), np.zeros(10, dtype=int)
    labels[:3] = 1  # planted
    cell = Cell("texts", "planted, 30 %", np.zeros((10, 1)), labels, labels != true)
    verdicts = SimpleNamespace(
        suspects=lambda: np.array([0, 1, 7, 8]),
        evidence=SimpleNamespace(n=10, disagreeing=6, false_discovery_rate=0.25),
        fit=SimpleNamespace(suggested=np.array([0, 0, 0, 0, 0, 0, 1, 1, 1, 0])),
    )
    assert counted(cell, verdicts, "texts") == Outcome("texts", "planted, 30 %", 10, 3, 6, 4, 2, 1.0)
    doubted = np.isin(np.arange(10), [1, 8, 9])
    spared = counted(cell, verdicts, "spared", doubted)
    assert spared == Outcome("spared", "planted, 30 %", 7, 2, 4, 2, 1, 0.5)


def test_the_totals_of_the_page_use_the_published_labels():
    rows = [
        Outcome("a", "planted, 2 %", 100, 2, 5, 4, 1, 0.4),
        Outcome(f"a, {UNDOUBTED}", "planted, 2 %", 90, 2, 4, 3, 0, 0.3),
    ]
    text = page(rows, range(100, 103), "command")
    assert "On real data 4 labels were called wrong; 25.0 % of them were right." in text
    assert "labels called wrong are right: a, planted, 2 % (25 %)." in text
