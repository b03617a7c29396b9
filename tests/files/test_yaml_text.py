"""Values as people write them."""

from __future__ import annotations

import pytest

from confide.checks import InputError
from confide.files.formats import read_yaml


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("1e-3", 1e-3),
        ("-2E4", -2e4),
        (".5e1", 5.0),
        ("1.5e+2", 150.0),
        ("3", 3),
        ("0.1", 0.1),
        ("1e", "1e"),
        ("e3", "e3"),
        ("{learning_rate: 5e-4, words: [1e2, a]}", {"learning_rate": 5e-4, "words": [100.0, "a"]}),
        ("", None),
    ],
)
def test_numbers_with_an_exponent_are_numbers(text: str, value: object) -> None:
    assert read_yaml(text, "it") == value


def test_what_is_no_yaml_or_makes_objects_gets_one_line() -> None:
    for text in ("[1", "a: b: c", "!!python/object/apply:os.system ['true']"):
        with pytest.raises(InputError, match=r"^the value must be YAML: [^\n]+$"):
            read_yaml(text, "the value")
