"""One file for each table or figure of a paper; `items` finds them all."""

from importlib import import_module
from pathlib import Path

from benchmarks.lib.items import Item


def items() -> dict[str, Item]:
    """The tables and figures, by name."""
    names = [file.stem for file in sorted(Path(__file__).parent.glob("p[0-9]_*.py"))]
    modules = [import_module(f"benchmarks.papers.{name}") for name in (*names, "by_difficulty", "main_table")]
    return {module.ITEM.name: module.ITEM for module in modules}
