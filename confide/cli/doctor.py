"""`confide doctor`: what is installed, what is missing, how to get it."""

from __future__ import annotations

import argparse
import os
import platform
import re
import shutil
from importlib import metadata
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

from confide import __version__
from confide.cli.shared import print_json, text_table

if TYPE_CHECKING:
    from confide.types import JsonObject

EXAMPLE = "  confide doctor"

BRINGS = {
    "vision": "CLIP, DINOv2, ViT, EfficientNet-Lite features",
    "text": "MiniLM text features",
    "hf": "Hugging Face datasets",
    "timm": "timm and OpenCLIP models",
    "ray": "work on a cluster",
    "report": "static figures (SVG, PNG)",
    "track": "training logs in TensorBoard and MLflow",
    "explore": "the explorer",
    "fiftyone": "export of tagged samples to FiftyOne",
    "lightning": "callbacks for Lightning, every metric as one of torchmetrics",
    "sklearn": "classifiers that are calibrated or abstain, for scikit-learn",
    "bench": "peers to compare quality and speed with",
}
"""What each extra is for; what it installs is read from the package's own metadata."""


def requirements() -> dict[str, tuple[str, ...]]:
    """Extra -> the distributions it installs, as the installed package declares them; "" -> those always needed."""
    packages: dict[str, list[str]] = {"": []}
    try:
        declared = metadata.requires("confide") or []
    except metadata.PackageNotFoundError:
        declared = []
    for requirement in declared:
        name = re.match(r"[\w.-]+", requirement)
        extra = re.search(r"""extra == ["']([^"']+)""", requirement)
        if name:
            packages.setdefault(extra[1] if extra else "", []).append(name[0])
    return {extra: tuple(names) for extra, names in packages.items()}


def missing_packages() -> list[str]:
    """What is always needed and is not here."""
    return [name for name in requirements()[""] if version_of(name) is None]


def configure(parser: argparse.ArgumentParser) -> None:
    del parser  # no options of its own


def run(args: argparse.Namespace) -> int:
    report = examine()
    if args.json:
        print_json(report)
        return 0
    print(f"confide {report['confide']} on Python {report['python']}, {report['system']}, {report['cores']} cores")
    print(f"accelerator: {report['accelerator']}")
    print(f"threads: {report['threads']} (OMP_NUM_THREADS sets another number)")
    print(f"nearest neighbours: {report['neighbours']}")
    print(f"free disk here: {report['free_disk_gb']:.0f} GB\n")
    if not report["core"]:
        print("confide is not installed here, only imported, so what it needs is not known; run: pip install confide")
        return 1
    rows = [(name, version or "missing") for name, version in report["core"].items()]
    print(text_table(("needed", "version"), rows) + "\n")
    extras = [
        (name, "yes" if e["installed"] else f"no: pip install 'confide[{name}]'", e["brings"])
        for name, e in report["extras"].items()
    ]
    first, second = (max(len(e[column]) for e in extras) for column in (0, 1))
    for name, state, brings in [("extra", "installed", "brings"), *extras]:
        print(f"{name:<{first}}  {state:<{second}}  {brings}")
    missing = [name for name, version in report["core"].items() if version is None]
    absent = [name for name, e in report["extras"].items() if not e["installed"]]
    if missing:
        print(f"\nneeded but missing: {', '.join(missing)}; mend with: pip install {' '.join(missing)}")
    elif absent:
        print(f"\nall that is needed is here; for every extra: pip install 'confide[{','.join(absent)}]'")
    else:
        print("\nall that is needed is here, and every extra")
    return 1 if missing else 0


def examine() -> JsonObject:
    """The state of this installation as plain values."""
    needed = requirements()
    return {
        "confide": __version__,
        "python": platform.python_version(),
        "system": f"{platform.system()} {platform.machine()}",
        "cores": os.cpu_count(),
        "accelerator": accelerator(),
        "threads": threads(),
        "neighbours": neighbours(),
        "free_disk_gb": shutil.disk_usage(Path.cwd()).free / 1e9,
        "core": {name: version_of(name) for name in needed[""]},
        "extras": {
            extra: {
                "installed": all(version_of(name) for name in needed[extra]),
                "packages": list(needed[extra]),
                "brings": brings,
            }
            for extra, brings in BRINGS.items()
            if extra in needed
        },
    }


def version_of(distribution: str) -> str | None:
    """Version of an installed distribution, or None."""
    try:
        return metadata.version(distribution)
    except metadata.PackageNotFoundError:
        module = re.sub(r"[-.]", "_", distribution).lower()
        return "present" if find_spec(module) else None


def threads() -> int | None:
    """Threads that torch works with on the CPU; None where it is missing."""
    if find_spec("torch") is None:
        return None
    import torch

    return torch.get_num_threads()


def neighbours() -> str:
    """What searches them in large sets of features."""
    version = version_of("faiss-cpu") or version_of("faiss-gpu") or ("present" if find_spec("faiss") else None)
    return f"by faiss {version}" if version else "by Confide's own search (pip install faiss-cpu: a quarter less time)"


def accelerator() -> str:
    """The device that training would use."""
    if find_spec("torch") is None:
        return "none (torch is missing)"
    import torch

    if torch.cuda.is_available():
        return f"{torch.cuda.get_device_name(0)} (CUDA {torch.version.cuda})"
    if torch.backends.mps.is_available():
        return "Apple MPS"
    return "none, the CPU is used"
