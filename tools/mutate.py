"""`make mutate MINUTES=30`: random small changes to the package; do its fast tests notice?

A mutant is one changed operator, constant or condition inside a function. All that are drawn stand in one copy of the
package at once, each behind a switch, so that imports are paid once: the tests run a first time with every switch off,
which tells the tests that reach each mutant, and then for each mutant, in a fork with its switch on, those tests alone,
the quickest first. Killed: a test fails, or they take five times as long. Survivors are listed in
benchmarks/results/mutation.md, to be read: each is a missing test, or a change that changes nothing.
"""

from __future__ import annotations

import argparse
import ast
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
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import asdict, dataclass
from importlib import import_module
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest

ROOT = Path(__file__).parent.parent
RESULTS = ROOT / "benchmarks" / "results" / "mutation.md"
NOT_HERE = ("simplex/kernels.py", "simplex/gpu.py", "simplex/launch.py")
"""Code that only a GPU runs."""
HEAVY = ("torch", "scipy.stats", "sklearn.linear_model", "pyarrow.parquet", "yaml", "PIL.Image")
PYTEST = ("-q", "-p", "no:cacheprovider", "-W", "ignore::pytest.PytestAssertRewriteWarning")
LEAST = 4
"""Mutants of every package, where it has so many."""
LONGEST = 20.0
"""Seconds of tests that a mutant meets at most, the quickest of those that reach it."""
SWITCH = """import builtins, os
builtins.mutants_reached = set()
builtins.active_mutant = int(os.environ.get("MUTANT", "-1"))
def switched(number):
    builtins.mutants_reached.add(number)
    return number == builtins.active_mutant
builtins.mutant_is_on = switched
"""
COMPARISONS = {
    ast.Lt: ast.LtE, ast.LtE: ast.Lt, ast.Gt: ast.GtE, ast.GtE: ast.Gt, ast.Eq: ast.NotEq, ast.NotEq: ast.Eq,
    ast.Is: ast.IsNot, ast.IsNot: ast.Is, ast.In: ast.NotIn, ast.NotIn: ast.In,
}  # fmt: skip
OPERATORS = {ast.Add: ast.Sub, ast.Sub: ast.Add, ast.Mult: ast.Div, ast.Div: ast.Mult, ast.FloorDiv: ast.Mult}
CALLS = {"min": "max", "max": "min", "all": "any", "any": "all", "argmin": "argmax", "argmax": "argmin"}


@dataclass(frozen=True)
class Mutant:
    """One change: where, what stood there, and what stands there now."""

    path: str
    line: int
    before: str
    after: str
    start: int
    end: int

    @property
    def package(self) -> str:
        return self.path.split("/")[1].removesuffix(".py")

    def overlaps(self, other: Mutant) -> bool:
        return self.path == other.path and self.start < other.end and other.start < self.end


def mutants_of(path: Path) -> Iterator[Mutant]:
    """Every change that is tried in a file: inside functions, but not in messages, annotations and defaults."""
    source = path.read_text(encoding="utf-8")
    lines = [0]
    for line in source.encode().splitlines(keepends=True):
        lines.append(lines[-1] + len(line))
    tree = ast.parse(source)
    nodes = list(ast.walk(tree))
    silent = {id(inner) for node in nodes for part in _silent_parts(node) for inner in ast.walk(part)}
    inside = {id(inner) for node in nodes for part in _bodies(node) for inner in ast.walk(part)} - silent
    for node in nodes:
        if not isinstance(node, ast.expr) or id(node) not in inside:
            continue
        changed = _changed(node)
        if changed is None or node.end_lineno is None or node.end_col_offset is None:
            continue
        start, end = lines[node.lineno - 1] + node.col_offset, lines[node.end_lineno - 1] + node.end_col_offset
        before = source.encode()[start:end].decode()
        yield Mutant(path.relative_to(ROOT).as_posix(), node.lineno, before, changed, start, end)


def _bodies(node: ast.AST) -> list[ast.AST]:
    """What runs when a function is called."""
    if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
        return list(node.body)
    return [node.body] if isinstance(node, ast.Lambda) else []


def _silent_parts(node: ast.AST) -> list[ast.AST]:
    """Parts whose change no test should see, or that a switch cannot stand in: messages, annotations, patterns."""
    if isinstance(node, (ast.Raise, ast.JoinedStr, ast.pattern)):
        return [node]
    if isinstance(node, ast.keyword) and node.arg == "strict":
        return [node.value]  # of zip: what it guards against cannot happen
    if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)):
        args = node.args
        defaults = [*args.defaults, *filter(None, args.kw_defaults)]
        hints = [a.annotation for a in (*args.posonlyargs, *args.args, *args.kwonlyargs) if a.annotation]
        own = [] if isinstance(node, ast.Lambda) else [*node.decorator_list, *filter(None, [node.returns])]
        return [*defaults, *hints, *own]
    return [node.annotation] if isinstance(node, ast.AnnAssign) else []


def _changed(node: ast.expr) -> str | None:
    """The changed source of an expression; None where nothing is tried."""
    if isinstance(node, ast.Compare) and len(node.ops) == 1 and type(node.ops[0]) in COMPARISONS:
        return ast.unparse(ast.Compare(node.left, [COMPARISONS[type(node.ops[0])]()], node.comparators))
    if isinstance(node, ast.BinOp) and type(node.op) in OPERATORS and not isinstance(node.left, ast.JoinedStr):
        return f"({ast.unparse(ast.BinOp(node.left, OPERATORS[type(node.op)](), node.right))})"
    if isinstance(node, ast.BoolOp):
        other = ast.Or() if isinstance(node.op, ast.And) else ast.And()
        return f"({ast.unparse(ast.BoolOp(other, node.values))})"
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not):
        return f"({ast.unparse(node.operand)})"
    if isinstance(node, ast.Constant) and isinstance(node.value, bool):
        return str(not node.value)
    if isinstance(node, ast.Constant) and isinstance(node.value, int):
        return str(node.value + 1)
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in CALLS:
        return ast.unparse(ast.Call(ast.Name(CALLS[node.func.id]), node.args, node.keywords))
    return None


# The draw, and the copy in which all of them stand.


def drawn(count: int, draws: random.Random, packages: list[str]) -> tuple[list[Mutant], int]:
    """So many mutants, some of every package, none inside another; and how many there are to draw from."""
    files = [f for f in sorted((ROOT / "confide").rglob("*.py")) if not f.as_posix().endswith(NOT_HERE)]
    known = [m for file in files for m in mutants_of(file) if not packages or m.package in packages]
    draws.shuffle(known)
    chosen: list[Mutant] = []

    def take(wanted: Callable[[Mutant], bool]) -> None:
        for mutant in known:
            if wanted(mutant) and not any(mutant.overlaps(other) for other in chosen):
                chosen.append(mutant)

    counts: dict[str, int] = {}

    def rare(mutant: Mutant) -> bool:
        counts[mutant.package] = counts.get(mutant.package, 0) + 1
        return counts[mutant.package] <= LEAST

    take(rare)
    take(lambda _: len(chosen) < count)
    draws.shuffle(chosen)
    return chosen, len(known)


def copy_with_switches(folder: Path, mutants: list[Mutant]) -> Path:
    """The repository with all mutants, each switched off."""
    copy = folder / "copy"
    shutil.copytree(ROOT, copy, ignore=shutil.ignore_patterns(".git", ".venv", "runs", "__pycache__", ".*_cache"))
    (copy / "sitecustomize.py").write_text(SWITCH)  # for the processes that tests start
    for path in {mutant.path for mutant in mutants}:
        content = (copy / path).read_bytes()
        own = [(number, mutant) for number, mutant in enumerate(mutants) if mutant.path == path]
        for number, mutant in sorted(own, key=lambda pair: -pair[1].start):
            switch = f"(({mutant.after}) if mutant_is_on({number}) else ({mutant.before}))"
            content = content[: mutant.start] + switch.encode() + content[mutant.end :]
        (copy / path).write_bytes(content)
    return copy


# Running tests in forks of a process that has loaded everything.


@dataclass(frozen=True)
class TestRun:
    """What a test does with all mutants switched off: those that it reaches, how long it takes, whether it passes."""

    reached: list[int]
    seconds: float
    passes: bool


class Reach:
    """A pytest plugin that notes the run of every test."""

    def __init__(self) -> None:
        self.tests: dict[str, TestRun] = {}

    @pytest.hookimpl(hookwrapper=True)
    def pytest_runtest_protocol(self, item: Any) -> Iterator[None]:
        reached: set[int] = sys.modules["builtins"].mutants_reached  # type: ignore[attr-defined]
        reached.clear()
        self.passes, began = True, time.monotonic()
        yield
        self.tests[item.nodeid] = TestRun(sorted(reached), time.monotonic() - began, self.passes)

    def pytest_runtest_logreport(self, report: Any) -> None:
        self.passes &= not report.failed


def in_fork(work: Callable[[], int], seconds: float, output: str = os.devnull) -> int | None:
    """The exit status of work done in a fork, which writes what it says to a file; None where it takes longer."""
    child = os.fork()
    if child == 0:
        status = 9
        try:
            os.setsid()
            said = os.open(output, os.O_WRONLY | os.O_CREAT)
            os.dup2(said, 1)
            os.dup2(said, 2)
            status = work()
        except BaseException:
            traceback.print_exc()
        finally:
            os._exit(status)  # nothing of the parent's is cleaned up here
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        done, status = os.waitpid(child, os.WNOHANG)
        if done:
            return os.waitstatus_to_exitcode(status)
        time.sleep(0.02)
    os.killpg(child, signal.SIGKILL)
    os.waitpid(child, 0)
    return None


def runs_of(places: list[str], file: Path) -> dict[str, TestRun]:
    """Every test of these places."""

    def work() -> int:
        reach = Reach()
        status = int(pytest.main([*PYTEST, *places], plugins=[reach]))
        file.write_text(json.dumps({name: asdict(run) for name, run in reach.tests.items()}))
        return status

    output = file.with_suffix(".txt")
    in_fork(work, 24 * 3600, str(output))
    if not file.exists():
        raise SystemExit(output.read_text()[-2000:])
    return {name: TestRun(**run) for name, run in json.loads(file.read_text()).items()}


def is_killed(number: int, tests: list[str], seconds: float) -> bool:
    """Whether a test notices the mutant."""

    def work() -> int:
        sys.modules["builtins"].active_mutant = number  # type: ignore[attr-defined]
        os.environ["MUTANT"] = str(number)
        return int(pytest.main([*PYTEST, "-x", *tests]))

    return in_fork(work, seconds) != 0


def main() -> None:
    parser = argparse.ArgumentParser(prog="make mutate", description=__doc__)
    parser.add_argument("--minutes", type=float, default=60, help="no mutant is begun after so many")
    parser.add_argument("--count", type=int, default=175)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--packages", nargs="*", default=[], help="only these")
    parser.add_argument("--tests", nargs="*", default=["tests"], help="only these tests")
    args = parser.parse_args()
    began, draws = time.monotonic(), random.Random(args.seed)
    head = subprocess.run(["git", "rev-parse", "--short", "HEAD"], cwd=ROOT, capture_output=True, text=True)
    commit = head.stdout.strip()  # of what is copied now, whatever comes meanwhile
    mutants, known = drawn(args.count, draws, args.packages)
    outcomes: list[tuple[Mutant, str]] = []
    with TemporaryDirectory() as folder:
        copy = copy_with_switches(Path(folder), mutants)
        os.environ |= {"OMP_NUM_THREADS": "1", "PYTHONDONTWRITEBYTECODE": "1", "PYTHONPATH": str(copy)}
        sys.dont_write_bytecode = True
        os.chdir(copy)
        sys.path.insert(0, str(copy))
        exec(SWITCH, {})
        for name in HEAVY:
            import_module(name)
        for path in sorted((copy / "confide").rglob("*.py")):
            with suppress(ImportError, SystemExit):  # optional packages
                import_module(".".join(path.relative_to(copy).with_suffix("").parts).removesuffix(".__init__"))
        tests = runs_of(args.tests, Path(folder) / "reached.json")
        failing = sum(not run.passes for run in tests.values())
        print(f"{len(tests)} tests, {failing} of them fail without a mutant and are left out", flush=True)
        for number, mutant in enumerate(mutants):
            if time.monotonic() - began > 60 * args.minutes:
                break
            reaching = ((run.seconds, name) for name, run in tests.items() if run.passes and number in run.reached)
            chosen, whole = [], 0.0
            for took, test in sorted(reaching):
                if not chosen or whole + took <= LONGEST:
                    chosen.append(test)
                    whole += took
            outcome = "not reached"
            if chosen:
                outcome = "killed" if is_killed(number, chosen, 5 * whole + 20) else "survived"
            outcomes.append((mutant, outcome))
            print(f"{outcome} {mutant.path}:{mutant.line} {mutant.after!r} ({len(chosen)} tests)", flush=True)
    RESULTS.write_text(page(outcomes, args, known, commit), encoding="utf-8")


def page(outcomes: list[tuple[Mutant, str]], args: argparse.Namespace, known: int, commit: str) -> str:
    """The results: killed by package, and every survivor."""
    used = sum(resource.getrusage(who).ru_utime for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    packages = sorted({mutant.package for mutant, _ in outcomes})
    rows = [(package, [outcome for mutant, outcome in outcomes if mutant.package == package]) for package in packages]
    rows = [*rows, ("**all**", [outcome for _, outcome in outcomes])]
    lines = [
        "# Mutation",
        "",
        f"{rows[-1][1].count('killed')} of {len(outcomes)} random mutants killed, drawn from {known:,} places inside "
        f"functions, at least {LEAST} of every package. Each met the fast",
        f"tests that reach it, at most {LONGEST:g} s of them; one that no fast test reaches counts as not killed.",
        "",
        f"`python tools/mutate.py --count {args.count} --seed {args.seed}"
        f"{' --packages ' + ' '.join(args.packages) if args.packages else ''}"
        f"{' --tests ' + ' '.join(args.tests) if args.tests != ['tests'] else ''}`, "
        f"commit {commit}, {platform.machine()}, {os.cpu_count()} cores, {used / 60:.0f} CPU-minutes.",
        "",
        "| package | mutants | killed | survived | not reached |",
        "|---|---|---|---|---|",
        *(
            f"| {package} | {len(all_)} | {100 * all_.count('killed') / len(all_):.0f} % | {all_.count('survived')} "
            f"| {all_.count('not reached')} |"
            for package, all_ in rows
            if all_
        ),
        "",
        "## Survivors",
        "",
        *(
            f"- {outcome}: `{m.path}:{m.line}` `{_short(m.before)}` → `{_short(m.after)}`"
            for m, outcome in sorted(outcomes, key=lambda pair: (pair[0].path, pair[0].line))
            if outcome != "killed"
        ),
    ]
    return "\n".join(lines) + "\n"


def _short(code: str) -> str:
    return " ".join(code.split())[:100]


if __name__ == "__main__":
    main()
