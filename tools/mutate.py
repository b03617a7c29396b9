"""`make mutate MINUTES=60`: random small changes to the package; do its tests notice?

A mutant is one changed operator, constant or condition in a copy of the package. The tests of its own package and the
conformance tests run against it. Killed: a test fails, or they take five times as long. Survivors are listed in
benchmarks/results/mutation.md, to be read: each is a missing test, or a change that changes nothing.
"""

from __future__ import annotations

import argparse
import ast
import os
import platform
import random
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

ROOT = Path(__file__).parent.parent
RESULTS = ROOT / "benchmarks" / "results" / "mutation.md"
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


def mutants_of(path: Path) -> Iterator[Mutant]:
    """Every change that is tried in a file; texts, annotations and messages are left alone."""
    source = path.read_text(encoding="utf-8")
    lines = [0]
    for line in source.encode().splitlines(keepends=True):
        lines.append(lines[-1] + len(line))
    tree = ast.parse(source)
    skipped = {
        (inner.lineno, inner.col_offset)
        for node in ast.walk(tree)
        for part in _silent_parts(node)
        for inner in ast.walk(part)
        if hasattr(inner, "lineno")
    }
    for node in ast.walk(tree):
        if not isinstance(node, ast.expr) or (node.lineno, node.col_offset) in skipped:
            continue
        changed = _changed(node)
        if changed is None or node.end_lineno is None or node.end_col_offset is None:
            continue
        start, end = lines[node.lineno - 1] + node.col_offset, lines[node.end_lineno - 1] + node.end_col_offset
        before = source.encode()[start:end].decode()
        yield Mutant(path.relative_to(ROOT).as_posix(), node.lineno, before, changed, start, end)


def _silent_parts(node: ast.AST) -> list[ast.AST]:
    """Parts whose change no test should see: messages of errors, annotations, registrations of facts."""
    if isinstance(node, ast.Raise):
        return [node]
    if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING":
        return [node]
    if isinstance(node, ast.FunctionDef):
        return [*node.decorator_list, *filter(None, [node.returns, *(a.annotation for a in node.args.args)])]
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


def tests_of(package: str) -> list[str]:
    """The tests that are asked about a package: its own, and those that loop over its registry."""
    places = [f"tests/{package}", f"tests/test_{package}.py", f"tests/conformance/test_{package}.py"]
    places += {"explorer": ["tests/hostile"], "files": ["tests/fuzz/test_files.py"]}.get(package, [])
    places += {"store": ["tests/story"], "experiment": ["tests/story"], "pipeline": ["tests/story"]}.get(package, [])
    return [place for place in places if (ROOT / place).exists()] or ["tests/story", "tests/cli"]


def _tests_in(copy: Path, places: list[str]) -> int:
    os.setsid()
    os.chdir(copy)
    sys.path.insert(0, str(copy))
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, 1)
    os.dup2(nowhere, 2)
    return int(pytest.main(["-q", "-x", "-p", "no:cacheprovider", *places]))


def run_tests(copy: Path, package: str, seconds: float) -> bool:
    """Whether the tests of a package pass in the copy in time, in a fork that has the heavy packages loaded already."""
    child = os.fork()
    if child == 0:
        status = 9
        try:
            status = _tests_in(copy, tests_of(package))
        finally:
            os._exit(status)  # nothing of the parent's is cleaned up here
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        done, status = os.waitpid(child, os.WNOHANG)
        if done:
            return os.waitstatus_to_exitcode(status) == 0
        time.sleep(0.05)
    os.killpg(child, signal.SIGKILL)
    os.waitpid(child, 0)
    return False


def main() -> None:
    parser = argparse.ArgumentParser(prog="make mutate", description=__doc__)
    parser.add_argument("--minutes", type=float, default=60)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--packages", nargs="*", default=[], help="only these")
    args = parser.parse_args()
    os.environ |= {"OMP_NUM_THREADS": "1", "PYTHONDONTWRITEBYTECODE": "1"}
    sys.dont_write_bytecode = True
    for heavy in ("torch", "scipy.stats", "sklearn.linear_model", "pyarrow.parquet", "yaml", "PIL.Image"):
        import_module(heavy)  # once, before the forks; nothing of confide
    end, draws = time.monotonic() + 60 * args.minutes, random.Random(args.seed)
    files = sorted((ROOT / "confide").rglob("*.py"))
    mutants = [m for file in files for m in mutants_of(file) if not args.packages or m.package in args.packages]
    draws.shuffle(mutants)
    limits: dict[str, float] = {}
    outcomes: list[tuple[Mutant, bool]] = []
    with TemporaryDirectory() as folder:
        copy = Path(folder) / "copy"
        ignored = shutil.ignore_patterns(".git", ".venv", "runs", "__pycache__", ".*_cache", "results")
        shutil.copytree(ROOT, copy, ignore=ignored)
        for mutant in mutants:
            if time.monotonic() > end:
                break
            if mutant.package not in limits:
                began = time.monotonic()
                passes = run_tests(copy, mutant.package, 900)
                limits[mutant.package] = 5 * (time.monotonic() - began) + 10 if passes else 0.0
            if not limits[mutant.package]:
                continue  # its tests fail without any change
            target = copy / mutant.path
            whole = target.read_bytes()
            target.write_bytes(whole[: mutant.start] + mutant.after.encode() + whole[mutant.end :])
            survived = run_tests(copy, mutant.package, limits[mutant.package])
            target.write_bytes(whole)
            outcomes.append((mutant, not survived))
            print(f"{'survived' if survived else 'killed'} {mutant.path}:{mutant.line} {mutant.after!r}", flush=True)
    RESULTS.write_text(page(outcomes, args, len(mutants)), encoding="utf-8")


def page(outcomes: list[tuple[Mutant, bool]], args: argparse.Namespace, known: int) -> str:
    """The results: killed by package, and every survivor."""
    commit = subprocess.run(["git", "rev-parse", "--short", "HEAD"], cwd=ROOT, capture_output=True, text=True)
    packages = sorted({mutant.package for mutant, _ in outcomes})
    rows = [(package, [killed for mutant, killed in outcomes if mutant.package == package]) for package in packages]
    total = [killed for _, killed in outcomes]
    lines = [
        "# Mutation",
        "",
        f"{sum(total)} of {len(total)} random mutants killed, drawn from {known:,}. Each met the tests of its own",
        "package alone: those of another may kill a survivor, so these are lower bounds.",
        "",
        f"`make mutate MINUTES={args.minutes:g}` (seed {args.seed}), commit {commit.stdout.strip()}, "
        f"{platform.machine()}, {os.cpu_count()} cores.",
        "",
        "| package | mutants | killed |",
        "|---|---|---|",
        *(f"| {package} | {len(killed)} | {100 * sum(killed) / len(killed):.0f} % |" for package, killed in rows),
        "",
        "## Survivors",
        "",
        *(
            f"- `{m.path}:{m.line}` `{' '.join(m.before.split())[:100]}` → `{' '.join(m.after.split())[:100]}`"
            for m, killed in sorted(outcomes, key=lambda outcome: (outcome[0].path, outcome[0].line))
            if not killed
        ),
    ]
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    main()
