"""Values that people write: YAML, with numbers such as 1e-3 read as numbers."""

from __future__ import annotations

import re
from typing import Any

import yaml

from confide.core.door import InputError


class _Loader(yaml.SafeLoader):
    """The safe loader, with the floats of YAML 1.2: version 1.1, which the library reads, takes 1e-3 for a word."""


_Loader.add_implicit_resolver(
    "tag:yaml.org,2002:float",
    re.compile(r"^[-+]?(\d+(\.\d*)?|\.\d+)[eE][-+]?\d+$"),
    list("-+.0123456789"),
)


def read_yaml(text: str, where: str) -> Any:
    """The value of a YAML text; what is no YAML gets one clear line that says where it stood."""
    try:
        return yaml.load(text, Loader=_Loader)
    except yaml.YAMLError as error:
        raise InputError(f"{where} must be YAML: {' '.join(str(error).split())}") from None
