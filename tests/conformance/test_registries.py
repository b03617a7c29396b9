"""What holds for every method of every family."""

import inspect

import pytest

from confide.cli.list import FAMILIES, registry_of

METHODS = [(family, method) for family in FAMILIES for method in registry_of(family)]
IDS = [f"{family}-{method.word}" for family, method in METHODS]


@pytest.mark.parametrize(("family", "method"), METHODS, ids=IDS)
def test_word_and_function_share_one_name(family, method):
    name = method.word.replace("-", "_").rstrip(":")
    if inspect.isfunction(method.function):
        assert method.function.__name__ == name


@pytest.mark.parametrize(("family", "method"), METHODS, ids=IDS)
def test_it_says_what_it_is_and_where_it_comes_from(family, method):
    assert method.paper.strip()
    assert len(method.summary) > 10
    assert method.summary.endswith(".")


@pytest.mark.parametrize(("family", "method"), METHODS, ids=IDS)
def test_it_says_when_to_take_it_and_when_not(family, method):
    assert method.advice.when, f"the docstring of {family} '{method.word}' has no line 'When: ...'"
    assert method.advice.when_not, f"the docstring of {family} '{method.word}' has no line 'When not: ...'"
    assert "When" not in method.advice.when + method.advice.differs


@pytest.mark.parametrize(("family", "method"), METHODS, ids=IDS)
def test_every_option_is_explained(family, method):
    text = inspect.getdoc(method.function)
    for name in method.options:
        assert name in text, f"option '{name}' of {family} '{method.word}' is not in its docstring"


@pytest.mark.parametrize(("family", "method"), METHODS, ids=IDS)
def test_corners_are_options_it_has(family, method):
    for corner in method.corners:
        method.check_options(corner)


def test_the_page_of_methods_shows_every_method():
    from pathlib import Path

    text = (Path(__file__).parents[2] / "docs" / "methods.md").read_text(encoding="utf-8")
    for family in FAMILIES:
        row = " · ".join(f"`{word}`" for word in sorted(registry_of(family).names()))
        assert f"| {family} | {row} |" in text, "run `make readme`"
