"""Calls of other libraries give the numbers that docs/coming_from.md shows, and ours give the same."""

import pytest

from benchmarks import coming_from


@pytest.fixture(scope="module")
def known():
    return coming_from.names()


@pytest.mark.parametrize("name", coming_from.LIBRARIES)
@pytest.mark.filterwarnings("default")
def test_their_call_and_ours_give_the_same_number(name, known):
    library = coming_from.LIBRARIES[name]
    try:
        found = coming_from.values(library, known)
    except ImportError as error:
        pytest.skip(str(error))
    assert coming_from.differ(library, found) == []


@pytest.mark.parametrize("name", coming_from.LIBRARIES)
def test_the_page_shows_the_calls_that_run(name):
    page = coming_from.PAGE.read_text(encoding="utf-8")
    for pair in coming_from.LIBRARIES[name].pairs:
        assert f"| `{pair.theirs}` |" in page, "run: python -m benchmarks.coming_from"
        assert f"| `{pair.ours}` |" in page, "run: python -m benchmarks.coming_from"


def test_a_number_that_differs_is_told():
    library = coming_from.Library("any", "", (coming_from.Pair("1.0", "1.1"), coming_from.Pair("1.0", "1.0")))
    assert coming_from.differ(library, [(1.0, 1.1), (1.0, 1.0)]) == ["1.0 = 1.0, 1.1 = 1.1"]
