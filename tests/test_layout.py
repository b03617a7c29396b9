"""How the package is laid out: one class of a name, and evidence that stays outside."""

import ast
from collections import Counter
from pathlib import Path

ROOT = Path(__file__).parents[1]


def test_no_class_name_is_defined_twice():
    names = Counter(
        node.name
        for path in (ROOT / "confide").rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.ClassDef)
    )
    assert [name for name, count in names.items() if count > 1] == []


def test_the_wheel_holds_the_package_alone():
    assert 'include = ["confide*"]' in (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    assert not (ROOT / "confide" / "bench").exists()
