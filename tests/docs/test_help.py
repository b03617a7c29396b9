"""`help()` helps: every public function says what it is, what it takes and gives, and shows an example that runs."""

import ast
import doctest
import inspect
import textwrap
from importlib import import_module
from pathlib import Path

import pytest

import confide

PLACES = (
    "confide",
    "confide.answers",
    "confide.calibrators",
    "confide.config",
    "confide.data",
    "confide.decisions",
    "confide.dense",
    "confide.difficulty",
    "confide.evaluation",
    "confide.experiment",
    "confide.explorer",
    "confide.features",
    "confide.files",
    "confide.integrations.huggingface",
    "confide.integrations.lightning",
    "confide.integrations.sklearn",
    "confide.integrations.torchmetrics",
    "confide.losses",
    "confide.metrics",
    "confide.models",
    "confide.monitor",
    "confide.penalties",
    "confide.pipeline",
    "confide.plot",
    "confide.report",
    "confide.results",
    "confide.robustness",
    "confide.scale",
    "confide.scoring",
    "confide.sets",
    "confide.shift",
    "confide.store",
    "confide.training",
    "confide.trust",
    "confide.trust.losses",
)
RECORDS = ("Predictions", "Dataset", "Split", "Features", "Scores", "Measurement", "Evaluation")
ERRORS = {"InputError", "OptionError", "MissingExtra"}
RESULTS = (
    confide.evaluation.OperatingPoint,
    confide.sets.PredictionSets,
    confide.monitor.Monitor,
    confide.calibrators.Calibrator,
    confide.training.Trained,
)


def public_functions():
    """Functions that a user reaches from the packages, and the named constructors and methods of the records."""
    functions = {}
    for place in PLACES:
        module = import_module(place)
        later = getattr(module, "_LATER", ())  # loaded when first used
        listed = getattr(module, "__all__", None)
        # A table of contents shows what is defined elsewhere; what a module imports for itself is not public by that.
        whose = "confide." if listed or hasattr(module, "__path__") else place
        for name in listed or sorted({*vars(module), *later}):
            thing = getattr(module, name)
            if inspect.isfunction(thing) and not name.startswith("_") and thing.__module__.startswith(whose):
                functions[f"{thing.__module__}.{thing.__qualname__}"] = thing
    for record in RECORDS:
        kind = getattr(confide, record)
        for name, thing in vars(kind).items():
            function = thing.__func__ if isinstance(thing, classmethod) else thing
            if inspect.isfunction(function) and not name.startswith("_"):
                functions[f"{function.__module__}.{function.__qualname__}"] = function
    return functions


FUNCTIONS = public_functions()


def called_by_benchmarks():
    """Functions of `confide` and its modules that benchmarks/ reaches; what lies deeper is named in the contract."""
    functions = {}
    for path in (Path(confide.__file__).parents[1] / "benchmarks").rglob("*.py"):
        nodes, modules = list(ast.walk(ast.parse(path.read_text(encoding="utf-8")))), {}
        reached = []
        for node in nodes:
            path_in = (node.module or "").split(".") if isinstance(node, ast.ImportFrom) else []
            if path_in[:1] == ["confide"] and len(path_in) < 3:
                module = import_module(node.module)
                for alias in node.names:
                    reached.append((node.module, alias.name))
                    modules[alias.asname or alias.name] = getattr(module, alias.name, None)
        for node in nodes:
            if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
                if inspect.ismodule(module := modules.get(node.value.id)):
                    reached.append((module.__name__, node.attr))
                elif node.value.id == "confide":
                    reached.append(("confide", node.attr))
        for module, name in reached:
            thing = getattr(import_module(module), name, None)
            if module.count(".") < 2 and inspect.isfunction(thing) and thing.__module__.startswith("confide."):
                functions[f"{thing.__module__}.{thing.__qualname__}"] = thing
    return functions


FUNCTIONS |= called_by_benchmarks()


def raised(function):
    """The errors of the library that a function raises in its own lines."""
    nodes = [
        node.exc
        for node in ast.walk(ast.parse(textwrap.dedent(inspect.getsource(function))))
        if isinstance(node, ast.Raise)
    ]
    return ERRORS & {node.func.id for node in nodes if isinstance(node, ast.Call) and isinstance(node.func, ast.Name)}


def test_no_public_module_is_left_out():
    public = {f"confide.{name}" for name in confide._MODULES} - {"confide.integrations"}
    assert public <= set(PLACES)


@pytest.mark.parametrize("name", FUNCTIONS)
def test_a_public_function_is_explained(name):
    function = FUNCTIONS[name]
    text = inspect.getdoc(function) or ""
    lacks = []
    if not text.split("\n", 1)[0].endswith((".", ":")):
        lacks.append("a first line that is a sentence")
    taken = [p for p in inspect.signature(function).parameters.values() if p.name not in ("self", "cls")]
    if taken and "Args:" not in text:
        lacks.append("Args:")
    lacks += [f"{p.name} under Args:" for p in taken if "Args:" in text and p.name not in text.split("Args:", 1)[1]]
    if inspect.signature(function).return_annotation not in (None, "None") and "Returns:" not in text:
        lacks.append("Returns:")
    told = text.partition("Raises:")[2]
    lacks += [f"{error} under Raises:" for error in sorted(raised(function)) if error not in told]
    if "Example:" not in text or ">>> " not in text:
        lacks.append("Example:")
    assert not lacks, f"help({name}) lacks {', '.join(lacks)}"


@pytest.mark.parametrize("kind", RESULTS)
def test_methods_of_a_result_begin_with_a_sentence(kind):
    for name in (name for name in dir(kind) if not name.startswith("_")):
        method = inspect.getattr_static(kind, name)
        function = method.fget if isinstance(method, property) else getattr(method, "__func__", method)
        if inspect.isfunction(function):
            text = inspect.getdoc(function) or ""
            assert text.split("\n", 1)[0].endswith((".", ":")), f"help({kind.__name__}.{name}) begins with no sentence"


@pytest.mark.parametrize("name", [name for name in FUNCTIONS if ">>> " in (inspect.getdoc(FUNCTIONS[name]) or "")])
def test_an_example_runs(name, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    test = doctest.DocTestFinder(recurse=False).find(FUNCTIONS[name], name, globs={"confide": confide})
    runner = doctest.DocTestRunner(optionflags=doctest.NORMALIZE_WHITESPACE | doctest.ELLIPSIS)
    out = []
    for example in test:
        runner.run(example, out=out.append, clear_globs=True)
    assert runner.failures == 0, "".join(out)
