"""`confide completion SHELL`: a script that completes verbs, flags, methods and files in bash, zsh or tcsh."""

from __future__ import annotations

import argparse
from importlib import import_module
from importlib.util import find_spec

from confide.cli.list import FAMILIES, registry_of, stand_ins
from confide.cli.shared import print_json

SHELLS = ("bash", "zsh", "tcsh")
EXAMPLE = '  confide completion bash\n  eval "$(confide completion bash)"  # in ~/.bashrc: in every shell'

WORDS = {
    ("train", "loss"): "losses",
    ("train", "model"): "models",
    ("train", "features"): "features",
    ("score", "method"): "difficulty",
    ("score", "features"): "features",
    ("calibrate", "methods"): "calibrators",
    ("sets", "method"): "sets",
    ("trust", "only"): "trust",
    ("evaluate", "metrics"): "metrics",
    ("compare", "metrics"): "metrics",
}
"""Families whose words complete an argument of a verb. It takes others too, such as a word with options."""


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("shell", choices=SHELLS, help="which shell")


def run(args: argparse.Namespace) -> None:
    from confide.checks import InputError

    if find_spec("shtab") is None:
        raise InputError("completion needs the package 'shtab'; install it with: pip install shtab")
    script = import_module("shtab").complete(whole_parser(), shell=args.shell)
    if args.json:
        print_json({"shell": args.shell, "script": script})
    else:
        print(script)


def whole_parser() -> argparse.ArgumentParser:
    """All verbs in one parser; the command line itself makes only that of the verb it runs."""
    from confide.cli.main import VERBS, add_common_flags

    parser = argparse.ArgumentParser(prog="confide")
    parser.add_argument("--version", action="store_true", help="print the version")
    verbs = parser.add_subparsers()
    arguments: dict[tuple[str, str], argparse.Action] = {}
    for verb, line in VERBS.items():
        own = verbs.add_parser(verb, help=line)
        import_module(f"confide.cli.{verb.replace('-', '_')}").configure(own)
        add_common_flags(own)
        arguments |= {(verb, action.dest): action for action in own._actions}
    with stand_ins():
        for place, family in WORDS.items():
            arguments[place].choices = [m.word for m in registry_of(family) if "<" not in m.word]
    arguments["list", "family"].choices = list(FAMILIES)
    return parser
