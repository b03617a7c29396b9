"""The README's headline table comes from the result files."""

from __future__ import annotations

import numpy as np

from benchmarks import ROOT, headline
from confide import files


def test_the_best_nll_comes_first_and_the_rest_of_the_page_stays(tmp_path):
    rows = [
        (method, quantity, value)
        for method, nll in (("worse", 0.3), ("better", 0.2))
        for quantity, value in (("accuracy", 93.0), ("ece_mass", 3.0), ("nll, calibrated", nll))
    ]
    words = {
        "dataset": np.array(["cifar10"] * len(rows)),
        "method": np.array([row[0] for row in rows]),
        "quantity": np.array([row[1] for row in rows]),
        "hardware": np.array(["a GPU; 16 cores"] * len(rows)),
    }
    numbers = {"mean": np.array([row[2] for row in rows]), "deviation": np.full(len(rows), 0.1)}
    path = tmp_path / "main.parquet"
    files.write_table(path, {**words, **numbers, "x": np.full(len(rows), np.nan), "seeds": np.full(len(rows), 5)})
    page = headline.renewed(f"before\n{headline.START}\nold\n{headline.END}\nafter\n", path)
    assert page.startswith("before\n")
    assert page.endswith("after\n")
    assert "old" not in page
    assert page.index("`better`") < page.index("`worse`")
    assert "| `better` | 93.00 ± 0.10 | 3.00 ± 0.10 |  | 0.2000 ± 0.1000 |" in page
    assert headline.renewed(page, path) == page


def test_rows_that_average_predictions_are_told_apart():
    said = headline.averaged(["cross_entropy_averaged", "adaptive_difficulty_averaged", "confide", "focal"])
    assert said.startswith(" `confide`, `cross_entropy_averaged` and `adaptive_difficulty_averaged` average weights")
    assert headline.averaged(["cross_entropy", "focal"]) == ""
    page = (ROOT / "README.md").read_text(encoding="utf-8")
    assert said in page
    assert "AURC × 1000, calibrated" in page


def test_without_results_the_page_stays(tmp_path):
    text = f"{headline.START}\nold\n{headline.END}"
    assert headline.renewed(text, tmp_path / "none.parquet") == text
