"""How the package is laid out: one class of a name, no slivers, and evidence that stays outside."""

import ast
from collections import Counter, defaultdict
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
ONE_IMPORTER = {
    "confide.evaluation.curves": "a topic: what is drawn of an evaluation, computed in one pass",
    "confide.explorer.comparison": "a topic: two models on the same samples",
    "confide.explorer.reliability": "a topic: what is said of confidence, and where it is wrong",
    "confide.explorer.server": "loads FastAPI, which starting the explorer must not do too early",
    "confide.files.signing": "keys and signatures, read on their own",
    "confide.report.verdict": "what a reader sees first, a section above the sections",
    "confide.simplex.gpu": "kernels",
    "confide.simplex.kernels": "kernels",
    "confide.simplex.launch": "kernels",
    "confide.simplex.sample_facts": "kernels",
}
"""Modules that one other module imports and that stand in no table of contents, and why they stay apart."""


@pytest.fixture(scope="module")
def modules():
    """Every module of the package by its name, parsed."""
    trees = {}
    for path in (ROOT / "confide").rglob("*.py"):
        parts = path.relative_to(ROOT).with_suffix("").parts
        name = ".".join(parts[:-1] if parts[-1] == "__init__" else parts)
        trees[name] = (path, ast.parse(path.read_text(encoding="utf-8")))
    return trees


def test_no_class_name_is_defined_twice(modules):
    names = Counter(
        node.name for _, tree in modules.values() for node in ast.walk(tree) if isinstance(node, ast.ClassDef)
    )
    assert [name for name, count in names.items() if count > 1] == []


def test_names_say_what_a_thing_is(modules):
    """Not where it came from: arguments, locals, fields, functions and classes."""
    vague = {"found", "said", "kept", "one", "wanted", "made", "given", "asked", "door", "voice", "foreign"}
    places = []
    for name, (_, tree) in modules.items():
        for node in ast.walk(tree):
            match node:
                case ast.Name(id=word, ctx=ast.Store()) | ast.Attribute(attr=word, ctx=ast.Store()):
                    pass
                case ast.arg(arg=word) | ast.FunctionDef(name=word) | ast.ClassDef(name=word):
                    pass
                case _:
                    continue
            if word.lower().strip("_") in vague:
                places.append(f"{name}:{node.lineno} {word}")
    assert places == []


def test_the_wheel_holds_the_package_alone():
    assert 'include = ["confide*"]' in (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    assert not (ROOT / "confide" / "bench").exists()


def test_a_module_with_one_importer_hides_something_hard_or_is_in_a_table(modules):
    importers = defaultdict(set)
    for name, (_, tree) in modules.items():
        for node in ast.walk(tree):
            if isinstance(node, ast.ImportFrom) and node.module:
                for imported in (node.module, *(f"{node.module}.{alias.name}" for alias in node.names)):
                    importers[imported].add(name)
    packages = {name for name, (path, _) in modules.items() if path.name == "__init__.py"}
    # A package that imports its own module names it in its table of contents; a verb stands in that of the commands.
    alone = {
        name
        for name in modules.keys() - packages
        if len(importers[name]) == 1
        and name.rpartition(".")[0] not in importers[name]
        and not name.startswith("confide.cli.")
    }
    assert alone == set(ONE_IMPORTER)
