"""How the package is laid out: one class of a name, typed seams, no slivers, and evidence that stays outside."""

import ast
from collections import Counter, defaultdict
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
ONE_IMPORTER = {
    "confide.evaluation.curves": "a topic: what is drawn of an evaluation, computed in one pass",
    "confide.evaluation.external_sort": "hides how rankings add up over ranges of sorted rows",
    "confide.explorer.comparison": "a topic: two models on the same samples",
    "confide.explorer.pixels": "a topic: what pixels of segmented images are shown as",
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
JSON_EDGES = {
    "files of fitted things": "calibrators.groups difficulty.base difficulty.combined difficulty.from_features "
    "files.fitted files.signing models.preparation models.trained trust.base trust.combined trust.distances "
    "trust.oracles trust.scores monitor.estimates monitor.watch",
    "records that are files": "config experiment records results.decisions results.evaluation results.measurements "
    "store evaluation.slices difficulty.explain pipeline.training scale scoring training.jobs "
    "training.settings explorer.layout",
    "other people's files": "answers data.tables features.images",
    "pages and requests": "report.page report.score_page report.sections.coverage explorer.samples explorer.server "
    "explorer.session",
    "what --json prints": "metrics.base registry cli.calibrate cli.doctor cli.harden cli.list cli.predict cli.score",
    "where it is defined": "types",
}
"""Modules that read or write JSON, and may hold an object of it; everywhere else a record says what there is."""


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


def test_a_name_of_a_type_is_defined_once(modules):
    """Aliases as well as classes: whoever reads `Columns` finds one definition."""
    names = [node.name for _, tree in modules.values() for node in ast.walk(tree) if isinstance(node, ast.ClassDef)]
    for _, tree in modules.values():
        for node in tree.body:
            match node:
                case (
                    ast.Assign(targets=[ast.Name(id=name)], value=value)
                    | ast.AnnAssign(target=ast.Name(id=name), value=value)
                ):
                    alias = isinstance(value, ast.Subscript | ast.BinOp | ast.Name | ast.Attribute)
                    names += [name] if alias and name[0].isupper() and not name.isupper() else []
    assert [name for name, count in Counter(names).items() if count > 1] == []


def test_names_say_what_a_thing_is(modules):
    """Not where it came from: arguments, locals, fields, functions and classes, here and in benchmarks/."""
    vague = {"found", "said", "told", "kept", "one", "wanted", "made", "given", "asked", "door", "voice", "foreign"}
    places = []
    benchmarks = {path.as_posix(): ast.parse(path.read_text("utf-8")) for path in (ROOT / "benchmarks").rglob("*.py")}
    for name, tree in [*((name, tree) for name, (_, tree) in modules.items()), *benchmarks.items()]:
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


def test_a_mapping_that_may_hold_anything_says_which_of_the_two_it_is(modules):
    """Keyword options, or JSON: known keys are fields of a record instead."""
    untyped = []
    for name, (_, tree) in modules.items():
        for node in ast.walk(tree):
            match node:
                case ast.Subscript(
                    value=ast.Name(id="dict" | "Mapping" | "MutableMapping"),
                    slice=ast.Tuple(elts=[ast.Name(id="str"), ast.Name(id="Any" | "object")]),
                ):
                    untyped.append(f"{name}:{node.lineno}")
    assert [place for place in untyped if not place.startswith("confide.types:")] == []


def test_objects_of_json_stay_where_json_is_read_or_written(modules):
    edges = {f"confide.{module}" for listed in JSON_EDGES.values() for module in listed.split()}
    users = {
        name
        for name, (_, tree) in modules.items()
        for node in ast.walk(tree)
        if isinstance(node, ast.Name) and node.id == "JsonObject"
    }
    assert users == edges


def test_parsed_arguments_go_no_deeper_than_the_verbs(modules):
    places = [
        f"{name}:{node.lineno}"
        for name, (_, tree) in modules.items()
        for node in ast.walk(tree)
        if isinstance(node, ast.Attribute) and node.attr == "Namespace" and not name.startswith("confide.cli.")
    ]
    assert places == []


def test_nothing_is_remembered_by_the_place_of_an_object(modules):
    """`id(thing)` may tell whether two are the same while both live: parts of one file, parameters of one network."""
    callers = {
        name
        for name, (_, tree) in modules.items()
        for node in ast.walk(tree)
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "id"
    }
    assert callers == {"confide.files.formats", "confide.training.state"}


def test_what_many_need_is_written_at_one_place(modules):
    """Formats of files, the sign between a name and its value, and how likely an error of a test may be."""
    formats, partings, levels = set(), set(), set()
    for name, (_, tree) in modules.items():
        for node in ast.walk(tree):
            match node:
                case ast.Call(func=ast.Name(id="Format")):
                    formats.add(name)
                case ast.Call(
                    func=ast.Attribute(attr="partition" | "rpartition" | "split"), args=[ast.Constant("="), *_]
                ):
                    partings.add(name)
                case ast.Constant(value=float(value)) if abs(value - 1.96) < 1e-3:
                    levels.add(name)
    assert formats == {"confide.files.formats"}
    # Of a user's words, of groups of a result, of a cookie, and of words that were parted before.
    assert partings == {
        "confide.files.formats",
        "confide.results.measurements",
        "confide.explorer.access",
        "confide.cli.train",
    }
    assert levels == {"confide.results.measurements"}


TWO_MEANINGS = {
    ("BANDS", 5): "of difficulty, in which sets are fitted and counted; of confidence, in which a watch looks",
    ("DRAWS", 1000): "of the band around bins; of models for the debiased error",
    ("FEW", 10): "draws that tell no share; samples with an unusual cost",
    ("MOST_CLASSES", 20): "dots of a figure; rows of a table",
    ("MOST_ROWS", 500): "of a figure's table; of a page of the explorer",
}
"""Constants that two modules call and set alike, and why they are two."""


def test_a_constant_of_one_name_and_value_is_written_once(modules):
    places = defaultdict(set)
    for name, (_, tree) in modules.items():
        for node in tree.body:
            match node:
                case ast.Assign(targets=[ast.Name(id=word)], value=ast.Constant(value=value)) if word.isupper():
                    places[word, value].add(name)
                case ast.Assign(targets=[ast.Name(id=word)], value=ast.Tuple() as value) if word.isupper():
                    places[word, ast.unparse(value)].add(name)
    assert {constant for constant, where in places.items() if len(where) > 1} == set(TWO_MEANINGS)
