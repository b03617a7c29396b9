"""`make mutate MINUTES=30`: random small changes to the package; do its fast tests notice?

A mutant is one changed operator, constant or condition inside a function. So many of every package are drawn; all stand
in one loaded copy of the package, each behind a switch, and all tests are collected once. The tests run a first time
with every switch off, which tells the blocks of code that each test reaches; then, for each mutant, a fork with its
switch on runs the tests that reach its block, those of its own family first, up to the first that fails. Killed: a test
fails that passes at the same place with the switch off, or it takes ten times its CPU-seconds and twenty more.
Survivors are listed in benchmarks/results/mutation.md, to be read: each is a missing test, or a change that changes
nothing (then it goes to tools/equivalent_mutants.json, with the reason).

In pieces: `--outcomes FILE` adds every outcome to a file and does not try again what stands there, `--packages` takes
some packages, `--map FILE` keeps what the tests reach; `--page FILE ...` writes the page from such files.

Not tried is what changes speed, looks or words alone: `_silent_parts` holds the rules.
"""

from __future__ import annotations

import argparse
import ast
import atexit
import builtins
import copy
import ctypes
import gc
import json
import os
import platform
import random
import resource
import shutil
import signal
import subprocess
import sys
import time
import traceback
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from hashlib import sha256
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder, SourceFileLoader
from pathlib import Path
from tempfile import TemporaryDirectory, mkdtemp
from types import CodeType, ModuleType
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
RESULTS = ROOT / "benchmarks" / "results" / "mutation.md"
EQUIVALENT = ROOT / "tools" / "equivalent_mutants.json"
LONGEST = 120.0
"""CPU-seconds of tests that a mutant meets at most, the quickest of those that reach it, if no other are asked for."""
PYTEST = ("-q", "-p", "no:cacheprovider", "-p", "no:xdist", "-o", "timeout=0", "-W", "ignore::pytest.PytestWarning")

COMPARISONS = {
    ast.Lt: ast.LtE, ast.LtE: ast.Lt, ast.Gt: ast.GtE, ast.GtE: ast.Gt, ast.Eq: ast.NotEq, ast.NotEq: ast.Eq,
    ast.Is: ast.IsNot, ast.IsNot: ast.Is, ast.In: ast.NotIn, ast.NotIn: ast.In,
}  # fmt: skip
OPERATORS = {ast.Add: ast.Sub, ast.Sub: ast.Add, ast.Mult: ast.Div, ast.Div: ast.Mult, ast.FloorDiv: ast.Mult}
CALLS = {"min": "max", "max": "min", "all": "any", "any": "all", "argmin": "argmax", "argmax": "argmin"}

DRAWN = ("report/", "monitor/page.py", "plot.py", "scoring.py")
"""Files that draw: arithmetic in the arguments of a drawing call, or in a name of geometry, is looks."""
GEOMETRY = {"x", "y", "x0", "x1", "y0", "y1", "px", "py", "left", "right", "top", "bottom", "floor", "ceiling"} | {
    "width", "height", "half", "each", "step", "start", "end", "gap", "place", "radius", "size", "centre", "row", "key",
    "before", "after", "base", "middle", "wide", "high_y", "low_y", "space", "limit", "columns", "lines", "baseline",
}  # fmt: skip
DRAWING_CALLS = {"Scale", "Canvas", "canvas", "ticks", "axis", "axes", "figure", "draw", "svg", "number_text"}
SIZES = {"BLOCK", "CACHED", "CACHED_FLOAT64", "CACHED_SEARCH", "MEMORY", "DEVICE_MEMORY"}
SPOKEN = {"warn", "step", "say"}
"""Warnings and lines of progress."""
ON_GPU = (
    *(f"simplex/{place}" for place in ("gpu.py:", "kernels.py:", "launch.py:", "row_sums.py:", "statistics.py:_cuda#")),
    *("training/steps.py:GraphStep", "training/steps.py:_capturable"),
)
"""Blocks that mostly run on a GPU alone: what no fast test reaches there is counted by itself."""
CLOCKS = {"monotonic", "perf_counter", "process_time", "time_ns"}


@dataclass(frozen=True)
class Mutant:
    """One change: the file, the place of the expression among its nodes, its block, and what stands there now."""

    path: str
    node: int
    block: str
    line: int
    before: str
    after: str

    @property
    def package(self) -> str:
        parts = self.path.split("/")
        return parts[1] if len(parts) > 2 else "confide"

    @property
    def change(self) -> tuple[str, str, str]:
        """What names it in the list of equivalent ones, wherever the lines move."""
        return self.block.partition("#")[0], self.before, self.after


def mutants_of(path: Path, root: Path = ROOT) -> Iterator[Mutant]:
    """Every change that is tried in a file."""
    source, name = path.read_text(encoding="utf-8"), path.relative_to(root).as_posix()
    tree = ast.parse(source)
    nodes = list(ast.walk(tree))
    silent = {id(inner) for node in nodes for part in _silent_parts(node, name) for inner in ast.walk(part)}
    blocks = Blocks(tree, name)
    for number, node in enumerate(nodes):
        block = blocks.of.get(id(node))
        if isinstance(node, ast.expr) and block is not None and id(node) not in silent:
            changed = _changed(node)
            if changed is not None:
                yield Mutant(name, number, block, node.lineno, ast.unparse(node), ast.unparse(changed))


class Blocks:
    """The blocks inside functions (a body, a branch, a handler), and the innermost one of every node."""

    def __init__(self, tree: ast.AST, path: str) -> None:
        self.of: dict[int, str] = {}
        self.bodies: list[tuple[str, list[ast.stmt]]] = []
        self._counts: Counter[str] = Counter()
        self._visit(tree, path, None)

    def _visit(self, node: ast.AST, scope: str, block: str | None) -> None:
        if block is not None:
            self.of[id(node)] = block
        is_function = isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef))
        if is_function or isinstance(node, ast.ClassDef):
            scope = f"{scope}:{node.name}"  # type: ignore[attr-defined]
        for _, value in ast.iter_fields(node):
            children = value if isinstance(value, list) else [value]
            inner = block
            if children and isinstance(children[0], ast.stmt) and (block is not None or is_function):
                self._counts[scope] += 1
                inner = f"{scope}#{self._counts[scope]}"
                self.bodies.append((inner, children))
            for child in children:
                if isinstance(child, ast.AST):
                    self._visit(child, scope, inner)


def _silent_parts(node: ast.AST, path: str) -> list[ast.AST]:
    """Parts whose change no fast test should see: messages, annotations, clocks, block sizes, pixels, a GPU's code."""
    if isinstance(node, (ast.Raise, ast.JoinedStr, ast.pattern, ast.Assert)):
        return [node]  # words; an assert tells the type checker what holds
    if isinstance(node, ast.keyword) and node.arg == "strict":
        return [node.value]  # of zip: what it guards against cannot happen
    if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)):
        args = node.args
        defaults = [*args.defaults, *filter(None, args.kw_defaults)]
        hints = [a.annotation for a in (*args.posonlyargs, *args.args, *args.kwonlyargs) if a.annotation]
        own = [] if isinstance(node, ast.Lambda) else [*node.decorator_list, *filter(None, [node.returns])]
        looks = not isinstance(node, ast.Lambda) and (
            node.name in ("__repr__", "__str__", "rows_in") or node.name.endswith("_tile")
        )
        kernel = any("triton" in ast.unparse(d) for d in own)
        return [node] if looks or kernel else [*defaults, *hints, *own]
    if isinstance(node, ast.If) and any(words in ast.unparse(node.test) for words in ("cuda", "device.type != 'cpu'")):
        return [node.test, *node.body]
    if isinstance(node, ast.Call) and _name(node.func) == "reshape":
        return [part for part in node.args if isinstance(part, ast.UnaryOp)]  # any negative length is the one left over
    if isinstance(node, ast.IfExp) and "cuda" in ast.unparse(node.test):
        return [node]
    if isinstance(node, ast.Call) and _name(node.func) in SPOKEN | {"rows_in"}:
        return [*node.args, *node.keywords]
    if isinstance(node, (ast.BinOp, ast.Compare)) and any(_name(n) in CLOCKS for n in ast.walk(node)):
        return [node]
    if isinstance(node, ast.Assign) and any(_name(n) in SIZES for n in ast.walk(node.value)):
        return [node.value]
    if any(part in path for part in DRAWN):
        return [n for part in _drawn_parts(node) for n in _arithmetic(part)]
    return [node.annotation] if isinstance(node, ast.AnnAssign) else []


def _drawn_parts(node: ast.AST) -> list[ast.AST]:
    """Where a drawing's pixels are worked out."""
    if isinstance(node, ast.Call):
        of_canvas = isinstance(node.func, ast.Attribute) and _name(node.func.value) == "canvas"
        return [*node.args, *node.keywords] if of_canvas or _name(node.func) in DRAWING_CALLS else []
    if isinstance(node, (ast.Assign, ast.AugAssign)):
        targets = node.targets if isinstance(node, ast.Assign) else [node.target]
        names = {n.id for target in targets for n in ast.walk(target) if isinstance(n, ast.Name)}
        return [node.value] if names and names <= GEOMETRY else []
    return []


def _arithmetic(part: ast.AST) -> list[ast.AST]:
    """The sums and whole numbers of an expression; not its conditions, nor what turns a share into per cent."""
    return [
        node
        for node in ast.walk(part)
        if (isinstance(node, ast.BinOp) and "100" not in ast.unparse(node))
        or (isinstance(node, ast.Constant) and node.value != 100 and type(node.value) is int)
    ]


def _name(node: ast.AST) -> str:
    return node.attr if isinstance(node, ast.Attribute) else node.id if isinstance(node, ast.Name) else ""


def _changed(node: ast.expr) -> ast.expr | None:
    """The changed expression; None where nothing is tried."""
    if isinstance(node, ast.Compare) and len(node.ops) == 1 and type(node.ops[0]) in COMPARISONS:
        return ast.Compare(node.left, [COMPARISONS[type(node.ops[0])]()], node.comparators)
    if isinstance(node, ast.BinOp) and type(node.op) in OPERATORS and not isinstance(node.left, ast.JoinedStr):
        return ast.BinOp(node.left, OPERATORS[type(node.op)](), node.right)
    if isinstance(node, ast.BoolOp):
        return ast.BoolOp(ast.Or() if isinstance(node.op, ast.And) else ast.And(), node.values)
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not):
        return node.operand
    if isinstance(node, ast.Constant) and isinstance(node.value, bool):
        return ast.Constant(not node.value)
    if isinstance(node, ast.Constant) and isinstance(node.value, int):
        return ast.Constant(node.value + 1)
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in CALLS:
        return ast.Call(ast.Name(CALLS[node.func.id], ast.Load()), node.args, node.keywords)
    return None


# The draw.


def drawn(each: int, seed: int, packages: list[str]) -> tuple[list[Mutant], Counter[str]]:
    """So many mutants of every package, three times as many of the files beside the packages; and all there are.

    The name of a file beside the packages (random.py) keeps those of the draw that lie in it.
    """
    equivalent = {tuple(entry["mutant"]) for entry in equivalent_mutants()}
    known: dict[str, list[Mutant]] = {}
    for file in sorted((ROOT / "confide").rglob("*.py")):
        for mutant in mutants_of(file):
            if mutant.change not in equivalent:
                known.setdefault(mutant.package, []).append(mutant)
    chosen: list[Mutant] = []
    for package, mutants in sorted(known.items()):
        count = min(3 * each if package == "confide" else each, len(mutants))
        sample = random.Random(f"{seed} {package}").sample(mutants, count)
        chosen += [m for m in sample if not packages or package in packages or m.path.split("/")[1] in packages]
    return chosen, Counter({package: len(mutants) for package, mutants in known.items()})


def equivalent_mutants() -> list[dict[str, Any]]:
    """Mutants that change nothing a test could see, each with the reason, as read by hand."""
    entries: list[dict[str, Any]] = json.loads(EQUIVALENT.read_text(encoding="utf-8"))
    return entries


# The switches: modules are changed as they are loaded, the files stay as they are.


class Switched(SourceFileLoader):
    """Loads a module with a note at every block and its mutants behind switches."""

    mutants: dict[str, dict[int, int]]
    root: Path

    def get_code(self, fullname: str) -> CodeType:
        path = self.get_filename(fullname)
        name = Path(path).relative_to(self.root).as_posix()
        tree = ast.parse(self.get_data(path))
        nodes, blocks = list(ast.walk(tree)), Blocks(tree, name)
        numbers = {id(nodes[place]): number for place, number in self.mutants.get(name, {}).items()}
        tree = _Switches(numbers).visit(tree)
        for block, body in blocks.bodies:
            note = ast.Expr(ast.Call(ast.Name("note_block", ast.Load()), [ast.Constant(block)], []))
            first = body[0]
            is_doc = isinstance(first, ast.Expr) and isinstance(getattr(first.value, "value", None), str)
            body.insert(1 if is_doc else 0, ast.copy_location(note, first))
        return compile(ast.fix_missing_locations(tree), path, "exec", dont_inherit=True)  # type: ignore[no-any-return]


class _Switches(ast.NodeTransformer):
    def __init__(self, numbers: dict[int, int]) -> None:
        self.numbers = numbers

    def visit(self, node: ast.AST) -> Any:
        number = self.numbers.get(id(node))
        changed = None if number is None else _changed(copy.deepcopy(node))  # type: ignore[arg-type]
        node = super().generic_visit(node)
        if changed is None:
            return node
        test = ast.Call(ast.Name("mutant_is_on", ast.Load()), [ast.Constant(number)], [])
        return ast.copy_location(ast.IfExp(test, changed, node), node)  # type: ignore[arg-type]


class Finder(MetaPathFinder):
    def find_spec(self, name: str, path: Sequence[str] | None, target: ModuleType | None = None) -> ModuleSpec | None:
        if name.partition(".")[0] != "confide":
            return None
        spec = PathFinder.find_spec(name, path, target)
        if spec is not None and isinstance(spec.loader, SourceFileLoader):
            spec.loader = Switched(spec.loader.name, spec.loader.path)
        return spec


def install(folder: str) -> None:
    """From here on the package is loaded with switches; a process that a test starts does this first."""
    mutants = json.loads((Path(folder) / "mutants.json").read_text())
    Switched.root = Path(folder) / "copy"
    Switched.mutants = {}
    for number, mutant in enumerate(mutants):
        Switched.mutants.setdefault(mutant["path"], {})[mutant["node"]] = number
    reached: set[str] = set()
    names: Any = builtins
    names.blocks_reached, names.note_block = reached, reached.add
    names.active_mutant = int(os.environ.get("MUTANT", "-1"))
    names.mutant_is_on = lambda number: number == names.active_mutant
    sys.meta_path.insert(0, Finder())


def install_in_started_process() -> None:
    """The same in a process that a test starts, which leaves a note of what it reached."""
    folder = os.environ["MUTATION"]
    install(folder)

    def leave() -> None:
        with open(Path(folder) / "reached.txt", "a", encoding="utf-8") as file:
            file.write("".join(f"{block}\n" for block in builtins.blocks_reached))  # type: ignore[attr-defined]

    atexit.register(leave)


STARTED = """import importlib.util, os
if "MUTATION" in os.environ:
    spec = importlib.util.spec_from_file_location("mutate", os.environ["MUTATION"] + "/copy/tools/mutate.py")
    mutate = importlib.util.module_from_spec(spec)
    import sys
    sys.modules["mutate"] = mutate
    spec.loader.exec_module(mutate)
    mutate.install_in_started_process()
"""


# Running tests in forks of a process that has collected them all.


@dataclass(frozen=True)
class TestRun:
    """What a test does with all mutants off: the blocks it reaches, its CPU-seconds, whether it passes."""

    blocks: list[str]
    seconds: float
    passes: bool


@dataclass(frozen=True)
class Asked:
    """One call of this tool: its options and the commit."""

    each: int
    seed: int
    minutes: float
    longest: float
    tests: list[str]
    commit: str


@dataclass(frozen=True)
class Outcome:
    """What became of a mutant (killed, endless: killed by time, survived, not reached), in so many CPU-seconds."""

    mutant: Mutant
    what: str
    seconds: float
    asked: Asked

    @property
    def is_killed(self) -> bool:
        return self.what in ("killed", "endless")

    @property
    def is_of_gpu(self) -> bool:
        """Whether it lies in code that no test without a GPU can reach."""
        return self.what == "not reached" and self.mutant.block.startswith(
            tuple(f"confide/{place}" for place in ON_GPU)
        )


def cpu_seconds() -> float:
    return sum(os.times()[:4])


class Runs:
    """A pytest plugin that takes over once all tests are collected."""

    def __init__(
        self, folder: Path, mutants: list[Mutant], asked: Asked, kept: Path | None, outcomes: Path, workers: int
    ) -> None:
        self.folder, self.mutants, self.asked, self.workers = folder, mutants, asked, workers
        self.kept, self.outcomes = kept, outcomes
        self.tests: dict[str, TestRun] = {}
        self.failed = False
        self.stop_at_failure = False
        self.failing = folder / f"failing-{os.getpid()}.txt"
        """Where a fork leaves the name of the test that failed in it."""

    def pytest_runtest_logreport(self, report: Any) -> None:
        self.failed |= report.failed
        if report.failed and self.stop_at_failure:
            self.failing.write_text(report.nodeid)
            os._exit(1)

    def pytest_runtestloop(self, session: Any) -> bool:
        self.items = {item.nodeid: item for item in session.items}
        self.at_import = set(builtins.blocks_reached)  # type: ignore[attr-defined]
        gc.collect()
        gc.freeze()
        self.map_tests()
        workers = [self.worker(k) for k in range(self.workers)]
        for worker in workers:
            os.waitpid(worker, 0)
        return True

    def worker(self, place: int) -> int:
        """A fork that tries every so many-th mutant."""
        child = os.fork()
        if child:
            return child
        began = time.monotonic()
        self.failing = self.folder / f"failing-{place}.txt"
        try:
            for number in range(place, len(self.mutants), self.workers):
                if time.monotonic() - began > 60 * self.asked.minutes:
                    break
                mutant, used = self.mutants[number], cpu_seconds()
                what, count = self.outcome(number, mutant)
                outcome = Outcome(mutant, what, cpu_seconds() - used, self.asked)
                with open(self.outcomes, "a", encoding="utf-8") as file:
                    file.write(json.dumps(asdict(outcome)) + "\n")
                change = f"{mutant.path}:{mutant.line} {mutant.before!r} -> {mutant.after!r}"
                print(f"{what} {change} ({count} tests, {outcome.seconds:.0f} s)", flush=True)
        except BaseException:
            traceback.print_exc()
        finally:
            os._exit(0)

    def map_tests(self) -> None:
        """The blocks that every test reaches; one is not asked again where it and what lies beside it are unchanged."""
        files = {name.partition("::")[0] for name in self.items}
        file_digests = {file: digest_of(self.folder / "copy" / file) for file in files}
        digests = {name: file_digests[name.partition("::")[0]] for name in self.items}
        if self.kept and self.kept.exists():
            for line in self.kept.read_text().splitlines():
                name, digest, run = json.loads(line)
                if digests.get(name) == digest:
                    self.tests[name] = TestRun(**run)
        missing = [item for name, item in self.items.items() if name not in self.tests]
        file = self.kept or self.folder / "map.jsonl"
        started = self.folder / "reached.txt"

        def work() -> int:
            reached: set[str] = builtins.blocks_reached  # type: ignore[attr-defined]
            for item, following in zip(missing, [*missing[1:], None], strict=True):
                forget()
                reached.clear()
                started.unlink(missing_ok=True)
                self.failed, began = False, cpu_seconds()
                item.config.hook.pytest_runtest_protocol(item=item, nextitem=following)
                blocks = reached | (set(started.read_text().splitlines()) if started.exists() else set())
                run = TestRun(sorted(blocks), cpu_seconds() - began, not self.failed)
                with open(file, "a", encoding="utf-8") as out:
                    out.write(json.dumps([item.nodeid, digests[item.nodeid], asdict(run)]) + "\n")
            return 0

        if missing:
            self.in_fork(work, 3600 * 24, str(self.folder / "map.txt"))
            for line in file.read_text().splitlines():
                name, digest, run = json.loads(line)
                if digests.get(name) == digest:
                    self.tests[name] = TestRun(**run)
        failing = [name for name, run in self.tests.items() if not run.passes]
        print(f"{len(self.tests)} of {len(self.items)} tests; left out, for they fail without a mutant: {failing}")
        self.reaching: dict[str, list[str]] = {}
        for name, run in self.tests.items():
            for block in run.blocks if run.passes else ():
                self.reaching.setdefault(block, []).append(name)

    def outcome(self, number: int, mutant: Mutant) -> tuple[str, int]:
        """What becomes of a mutant, and how many tests it met at most."""
        reaching = [name for name in self.reaching.get(mutant.block, []) if self.tests[name].passes]
        fresh = not reaching and mutant.block in self.at_import
        if fresh:  # the code runs as the package is loaded: a new process for its family's tests
            reaching = [name for name, run in self.tests.items() if run.passes and is_own(name, mutant)]
        if not reaching:
            return "not reached", 0
        chosen: list[str] = []
        whole = 0.0
        for took, name in sorted((self.tests[name].seconds, name) for name in reaching):
            if not chosen or whole + took <= self.asked.longest:
                chosen.append(name)
                whole += took
        files = Counter(name.partition("::")[0] for name in chosen)
        speed: dict[str, float] = dict.fromkeys(files, 0.0)
        for name in chosen:
            speed[name.partition("::")[0]] += self.tests[name].seconds / files[name.partition("::")[0]]

        def order(name: str) -> tuple[bool, float, str, float]:
            file = name.partition("::")[0]
            return not is_own(name, mutant), speed[file], file, self.tests[name].seconds

        names = sorted(chosen, key=order)
        while names:
            what = self.tried(number, names, fresh)
            if what != "killed" or fresh or not self.failing.exists():
                break
            met = names[: names.index(self.failing.read_text()) + 1]
            if self.tried(-1, met, fresh) == "survived":
                break
            self.tests[met[-1]] = replace(self.tests[met[-1]], passes=False)  # it hangs on the order, not on the mutant
            names.remove(met[-1])
        return what, len(chosen)

    def tried(self, number: int, names: list[str], fresh: bool) -> str:
        """What becomes of a mutant among these tests, one after another; -1: with every switch off."""
        items = [self.items[name] for name in names]

        def work() -> int:
            builtins.active_mutant = number  # type: ignore[attr-defined]
            self.stop_at_failure = True
            hard = resource.getrlimit(resource.RLIMIT_CPU)[1]
            for item, following in zip(items, [*items[1:], None], strict=True):
                soft = int(cpu_seconds() + 10 * self.tests[item.nodeid].seconds + 20)
                resource.setrlimit(resource.RLIMIT_CPU, (min(soft, hard), hard))
                item.config.hook.pytest_runtest_protocol(item=item, nextitem=following)
            return 0

        os.environ["MUTANT"] = str(number)
        self.failing.unlink(missing_ok=True)
        limit = 5 * sum(self.tests[name].seconds for name in names) + 120
        status = self.in_process(names, limit) if fresh else self.in_fork(work, limit)
        os.environ.pop("MUTANT")
        return {0: "survived", None: "endless"}.get(status, "killed")

    def in_process(self, names: list[str], seconds: float) -> int | None:
        command = [sys.executable, "-m", "pytest", *PYTEST, "-x", *names]
        try:
            return subprocess.run(command, capture_output=True, timeout=10 * seconds, check=False).returncode
        except subprocess.TimeoutExpired:
            return None

    def in_fork(self, work: Callable[[], int], seconds: float, output: str = os.devnull) -> int | None:
        """The exit status of work done in a fork, which writes what it says to a file; None where it takes longer."""
        base = mkdtemp(dir=self.folder)
        child = os.fork()
        if child == 0:
            status = 9
            try:
                os.setsid()
                if sys.platform == "linux":
                    ctypes.CDLL(None).prctl(1, signal.SIGKILL)  # it ends with whoever waits for it
                said = os.open(output, os.O_WRONLY | os.O_CREAT)
                os.dup2(said, 1)
                os.dup2(said, 2)
                resource.setrlimit(resource.RLIMIT_CPU, (int(seconds), int(seconds)))
                next(iter(self.items.values())).config._tmp_path_factory._basetemp = Path(base)
                os.environ["TMPDIR"] = base
                status = work()
            except BaseException:
                traceback.print_exc()
            finally:
                os._exit(status)  # nothing of the parent's is cleaned up here
        late = True
        for _ in range(int(100 * 2 * seconds)):  # counted, not timed: both may be stopped for a while
            done, status = os.waitpid(child, os.WNOHANG)
            late = not done
            if not late:
                break
            time.sleep(0.01)
        with suppress(ProcessLookupError):
            os.killpg(child, signal.SIGKILL)  # with whatever it started
        if late:
            os.waitpid(child, 0)
        shutil.rmtree(base, ignore_errors=True)
        signalled = late or (os.WIFSIGNALED(status) and os.WTERMSIG(status) in (signal.SIGKILL, signal.SIGXCPU))
        return None if signalled else os.waitstatus_to_exitcode(status)


def forget() -> None:
    """What functions of the package keep of earlier calls goes: it would hide the blocks that a test reaches."""
    for name, module in list(sys.modules.items()):
        if name.partition(".")[0] == "confide":
            for value in list(vars(module).values()):
                clear = getattr(value, "cache_clear", None)
                if callable(clear):
                    clear()


def digest_of(file: Path) -> str:
    """Of a test's file and of what lies beside it that is no test: kept numbers, worked cases, what they share."""
    beside = (p for p in file.parent.iterdir() if p.is_file() and not p.name.startswith("test_") and p != file)
    return sha256(b"".join(p.read_bytes() for p in [file, *sorted(beside)])).hexdigest()[:16]


def is_own(test: str, mutant: Mutant) -> bool:
    """Whether a test is of the mutant's own family: its folder, or the test file of its name."""
    file = test.partition("::")[0].removeprefix("tests/")
    stem = Path(mutant.path).stem
    return file.startswith((f"{mutant.package}/", f"test_{stem}", f"conformance/test_{mutant.package}"))


def main() -> None:
    parser = argparse.ArgumentParser(prog="make mutate", description=__doc__)
    parser.add_argument("--minutes", type=float, default=60, help="no mutant is begun after so many")
    parser.add_argument("--each", type=int, default=24, help="mutants of every package")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--workers", type=int, default=1, help="mutants tried at once")
    parser.add_argument("--packages", nargs="*", default=[], help="only these")
    parser.add_argument("--tests", nargs="*", default=["tests"], help="only these tests")
    parser.add_argument("--map", type=Path, help="a file that keeps what the tests reach from one run to the next")
    parser.add_argument("--longest", type=float, default=LONGEST, help="CPU-seconds of tests a mutant meets at most")
    parser.add_argument("--only", type=Path, help="only the mutants that this file of outcomes has as not killed")
    parser.add_argument("--outcomes", type=Path, help="a file to which outcomes are added; those in it stand")
    parser.add_argument("--page", type=Path, nargs="+", help="try nothing: write the page from files of outcomes")
    parser.add_argument("--out", type=Path, default=RESULTS, help="the page; written at the end where all were tried")
    args = parser.parse_args()
    out, kept = args.out.resolve(), args.map.resolve() if args.map else None
    if args.page:
        out.write_text(page(list(read_outcomes(args.page))), encoding="utf-8")
        return
    head = subprocess.run(["git", "rev-parse", "--short", "HEAD"], cwd=ROOT, capture_output=True, text=True)
    commit = head.stdout.strip()  # of what is copied now, whatever comes meanwhile
    asked = Asked(args.each, args.seed, args.minutes, args.longest, args.tests, commit)
    mutants, _ = drawn(args.each, args.seed, args.packages)
    if args.only:
        wanted = {o.mutant.change for o in read_outcomes([args.only]) if not o.is_killed}
        mutants = [mutant for mutant in mutants if mutant.change in wanted]
    with TemporaryDirectory() as folder:
        place = Path(folder).resolve()
        outcomes = args.outcomes.resolve() if args.outcomes else place / "outcomes.jsonl"
        tried = {outcome.mutant for outcome in read_outcomes([outcomes])}
        mutants = [mutant for mutant in mutants if mutant not in tried]
        random.Random(args.seed).shuffle(mutants)  # so that those of a short run are of all packages
        skipped = shutil.ignore_patterns(".git", ".venv", "runs", "build", "__pycache__", ".*_cache", ".hypothesis")
        shutil.copytree(ROOT, place / "copy", ignore=skipped)
        (place / "mutants.json").write_text(json.dumps([asdict(mutant) for mutant in mutants]))
        (place / "started").mkdir()
        (place / "started" / "sitecustomize.py").write_text(STARTED)
        paths = f"{place / 'copy'}{os.pathsep}{place / 'started'}"
        os.environ |= {"OMP_NUM_THREADS": "1", "PYTHONDONTWRITEBYTECODE": "1"}
        os.environ |= {"PYTHONPATH": paths, "MUTATION": str(place)}
        sys.dont_write_bytecode = True
        os.chdir(place / "copy")
        sys.path.insert(0, str(place / "copy"))
        install(str(place))
        import pytest

        runs = Runs(place, mutants, asked, kept, outcomes, args.workers)
        pytest.main([*PYTEST, *args.tests], plugins=[runs])
        if not args.outcomes:
            out.write_text(page(list(read_outcomes([outcomes]))), encoding="utf-8")


# The outcomes, and the page that tells them.


def read_outcomes(files: Sequence[Path]) -> Iterator[Outcome]:
    """The outcomes of several calls; of a mutant that several of them tried, the last."""
    last: dict[Mutant, Outcome] = {}
    for file in filter(Path.exists, files):
        for line in file.read_text(encoding="utf-8").splitlines():
            row = json.loads(line)
            mutant = Mutant(**row["mutant"])
            last[mutant] = Outcome(mutant, row["what"], row["seconds"], Asked(**row["asked"]))
    yield from last.values()


def page(outcomes: list[Outcome]) -> str:
    """The results: killed by package, and every survivor."""
    of_gpu = sum(o.is_of_gpu for o in outcomes)
    # Also what was found to change nothing only after it was tried.
    equivalent = {tuple(entry["mutant"]) for entry in equivalent_mutants()}
    outcomes = [o for o in outcomes if not o.is_of_gpu and o.mutant.change not in equivalent]
    calls = list({json.dumps(asdict(o.asked)): o.asked for o in outcomes}.values())
    known = drawn(0, 0, [])[1]
    packages = sorted({o.mutant.package for o in outcomes})
    rows = [(package, [o for o in outcomes if o.mutant.package == package]) for package in packages]
    shares = {package: sum(o.is_killed for o in all_) / len(all_) for package, all_ in rows}
    whole = sum(shares[package] * known[package] for package in packages) / sum(known[p] for p in packages)
    killed = sum(o.is_killed for o in outcomes)
    seeds, each = sorted({call.seed for call in calls}), max(call.each for call in calls)
    some = sorted({test for call in calls for test in call.tests} - {"tests"})
    lines = [
        "# Mutation",
        "",
        f"**{killed} of {len(outcomes)} random mutants killed ({100 * killed / len(outcomes):.1f} %)**; every package "
        f"weighted by its places ({sum(known[p] for p in packages):,} in all): {100 * whole:.1f} %.",
        f"At most {each} of every package and {3 * each} of the files beside the packages were drawn a call. Each met "
        f"the quickest of the fast tests that reach its block, at most {max(c.longest for c in calls):g} CPU-seconds;",
        f"one that no fast test reaches counts as not killed, but for {of_gpu} that lie in code of a GPU alone and are "
        "not among these. What changes speed, looks or words alone is not tried; "
        f"{len(equivalent_mutants())} mutants",
        "that change nothing are listed with their reasons in `tools/equivalent_mutants.json` and not drawn.",
        *(
            [f"Of some, not all tests were asked but those of {', '.join(f'`{t}`' for t in some)}: a lower bound."]
            if some
            else []
        ),
        "",
        f"`python tools/mutate.py --each {each} --seed S --outcomes FILE`, then `--page FILE ...`; seeds "
        f"{', '.join(map(str, seeds))}; commits {', '.join(sorted({call.commit for call in calls}))}; "
        f"{platform.machine()}, {os.cpu_count()} cores, {sum(o.seconds for o in outcomes) / 60:.0f} CPU-minutes.",
        "",
        "| package | places | mutants | killed | of these by time | survived | not reached |",
        "|---|---|---|---|---|---|---|",
        *(
            f"| {package} | {known[package]:,} | {len(all_)} | {100 * shares[package]:.0f} % | "
            + " | ".join(str(sum(o.what == what for o in all_)) for what in ("endless", "survived", "not reached"))
            + " |"
            for package, all_ in rows
        ),
        "",
        "## Survivors",
        "",
        *(
            f"- {o.what}: `{o.mutant.path}:{o.mutant.line}` `{_short(o.mutant.before)}` → `{_short(o.mutant.after)}`"
            for o in sorted(outcomes, key=lambda o: (o.mutant.path, o.mutant.line))
            if not o.is_killed
        ),
    ]
    return "\n".join(lines) + "\n"


def _short(code: str) -> str:
    return " ".join(code.split())[:100]


if __name__ == "__main__":
    main()
