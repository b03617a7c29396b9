"""The README as the package index shows it: links and pictures have whole addresses. All else is in pyproject.toml."""

import re
from pathlib import Path

from setuptools import setup

ROOT = Path(__file__).parent
SOURCE = re.search(r'^Source = "(.+)"$', (ROOT / "pyproject.toml").read_text(encoding="utf-8"), re.M)[1]
LINK = re.compile(r"(!?)\[([^\]]*)\]\((?![a-z]+:|#)([^)\s]+)\)")


def with_whole_addresses(text: str) -> str:
    """Relative links lead to the files of the repository, relative pictures to their bytes."""
    return LINK.sub(lambda m: f"{m[1]}[{m[2]}]({SOURCE}/{'raw' if m[1] else 'blob'}/main/{m[3]})", text)


setup(
    long_description=with_whole_addresses((ROOT / "README.md").read_text(encoding="utf-8")),
    long_description_content_type="text/markdown",
)
