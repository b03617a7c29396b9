"""Cold start: CPU time of a whole process, beside that of `import torch` in the same run.

python -m benchmarks.speed.start --out FILE.md
"""

from __future__ import annotations

import argparse
import os
import platform
import resource
import statistics
import subprocess
import sys
import tempfile
from datetime import date
from pathlib import Path

import numpy as np

COMMANDS = {
    "import torch": ["-c", "import torch"],
    "import confide": ["-c", "import confide"],
    "confide --help": ["-m", "confide", "--help"],
    "confide list": ["-m", "confide", "list"],
    "confide evaluate, 10,000 x 10, values only": ["-m", "confide", "evaluate", "made.npz", "--no-intervals"],
    "confide evaluate, 10,000 x 10": ["-m", "confide", "evaluate", "made.npz"],
}


def cpu_seconds(arguments: list[str], folder: str) -> float:
    """CPU seconds of a process and its children, from its start to its end."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    subprocess.run([sys.executable, *arguments], cwd=folder, env=environment, check=True, capture_output=True)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def table(rounds: int) -> list[str]:
    draw = np.random.default_rng(0)
    logits, labels = draw.normal(size=(10_000, 10)).astype(np.float32) * 2, draw.integers(10, size=10_000)
    logits[np.arange(10_000), labels] += 3
    times: dict[str, list[float]] = {name: [] for name in COMMANDS}
    with tempfile.TemporaryDirectory() as folder:
        np.savez(Path(folder) / "made.npz", logits=logits, labels=labels)
        for _ in range(rounds + 1):
            for name, arguments in COMMANDS.items():
                times[name].append(cpu_seconds(arguments, folder))
    base = times["import torch"][1:]
    lines = ["| command | CPU s | x import torch |", "|---|---|---|"]
    for name, all_rounds in times.items():
        ratio = statistics.median(a / b for a, b in zip(all_rounds[1:], base, strict=True))
        lines.append(f"| `{name}` | {statistics.median(all_rounds[1:]):.2f} | {ratio:.2f} |")
    return lines


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    git = ["git", "-C", str(Path(__file__).parent), "rev-parse", "--short", "HEAD"]
    commit = subprocess.run(git, capture_output=True, text=True).stdout.strip() or "unknown"
    lines = [
        "# Cold start\n",
        f"Two cores of an AMD EPYC, Python {platform.python_version()}; {date.today()}; "
        f"commit {commit}; `python -m benchmarks.speed.start`. CPU seconds of a process on one thread, medians of "
        f"{options.rounds} rounds in turn; the first round fills the caches and is left out.\n",
        *table(options.rounds),
    ]
    print("\n".join(lines))
    if options.out:
        options.out.write_text("\n".join(lines) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
