"""The tables of README and findings come from the result files."""

import pytest

from benchmarks import ROOT, headline


@pytest.mark.parametrize("page", headline.PAGES)
def test_every_table_is_made_from_results_and_is_short(page):
    text = (ROOT / page).read_text(encoding="utf-8")
    assert headline.PLACE.search(text)
    assert headline.renewed(text) == text, "run: python -m benchmarks.headline"
    for table in headline.PLACE.finditer(text):
        most = 6 if page == "README.md" else headline.MOST_ROWS
        assert len(table[0].splitlines()) - 4 <= most
