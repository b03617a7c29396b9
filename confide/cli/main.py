"""`confide VERB ...`: finds the verb's file, and turns bad input into one clear line."""

from __future__ import annotations

import argparse
import gc
import os
import shlex
import sys
from collections.abc import Callable
from difflib import get_close_matches
from importlib import import_module

from confide import __version__

VERBS = {
    "demo": "the whole story on embedded data: a report in a minute or two",
    "run": "an experiment from a YAML file, resumable",
    "evaluate": "metrics, intervals and a report from a file of predictions",
    "answers": "predictions from generated answers: choices, stated confidence, agreement, files of other tools",
    "dense": "predictions of pixels from segmented images, and of boxes from a detector",
    "compare": "paired tests between predictions on the same samples",
    "slices": "groups of samples whose confidence is wrong beyond chance",
    "operating-point": "a confidence threshold with a guaranteed risk",
    "labels": "thresholds of multilabel predictions, by cost, F or promised precision; which labels hold",
    "sets": "prediction sets that hold the true class as often as promised",
    "decide": "what to do with every sample by cost, whom to ask, what it costs",
    "monitor": "watch predictions in the field: estimates without labels, drift, alarms",
    "calibrate": "fit calibrators on validation predictions, choose, apply",
    "score": "how hard is every sample of a dataset",
    "harden": "a hard benchmark from scores, and errors by difficulty",
    "train": "train a classifier with any loss",
    "predict": "predictions of a trained checkpoint",
    "trust": "fit and compare trust predictors",
    "shift": "trained models on corrupted, attacked and out-of-distribution data",
    "report": "draw an evaluation or a run as one HTML file",
    "explore": "look into single samples in the browser, tag them, export",
    "list": "every method, with paper and options",
    "doctor": "what is installed, what is missing, how to get it",
    "completion": "a script that completes commands in your shell",
}


def main(arguments: list[str] | None = None) -> int:
    """Entry point; the exit status is 0, 1 for bad input, 2 for wrong usage, 3 where something does not hold."""
    words = sys.argv[1:] if arguments is None else arguments
    verb = words[0] if words else ""
    if verb in VERBS:
        try:
            status = _run_verb(verb, words[1:])
            sys.stdout.flush()
            return status
        except BrokenPipeError:
            if not _reader_left():
                raise
            return 141  # as the shell says of any command that a closed pipe ends
        except KeyboardInterrupt:  # also while the verb imports what it needs
            print("confide: stopped; the same command goes on where it was", file=sys.stderr)
            return 130
        except ModuleNotFoundError:
            from confide.cli.doctor import missing_packages

            if not (missing := missing_packages()):
                raise
            names = " ".join(missing)
            print(f"confide: not everything needed is installed; mend with: pip install {names}", file=sys.stderr)
            return 1
    parser = argparse.ArgumentParser(
        prog="confide",
        description="Classifiers whose confidence can be trusted, and the proof.",
        epilog="verbs:\n"
        + "\n".join(f"  {name:16} {line}" for name, line in VERBS.items())
        + "\n\n`confide VERB --help` explains each, with an example. Start with: confide demo",
        formatter_class=argparse.RawDescriptionHelpFormatter,
        usage="confide VERB ...",
    )
    parser.add_argument("--version", action="version", version=f"confide {__version__}")
    parser.add_argument("verb", choices=list(VERBS), metavar="VERB", help=argparse.SUPPRESS)
    if not words:
        parser.print_help()
        return 0
    if verb[:1] != "-" and (near := get_close_matches(verb, VERBS, n=1)):
        parser.error(f"no verb '{verb}'; did you mean '{near[0]}'?")
    parser.parse_args(words[:1])
    return 2


def _reader_left() -> bool:
    """Whether nobody reads the output any more, as after `| head`; then what is left of it goes nowhere."""
    try:
        print(flush=True)
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return True
    return False


def add_common_flags(parser: argparse.ArgumentParser) -> None:
    """What every verb takes."""
    parser.add_argument("--json", action="store_true", help="print the result as JSON, for machines")
    parser.add_argument("--quiet", action="store_true", help="no progress lines")


def _run_verb(verb: str, words: list[str]) -> int:
    module = import_module(f"confide.cli.{verb.replace('-', '_')}")
    parser = argparse.ArgumentParser(
        prog=f"confide {verb}",
        description=VERBS[verb][0].upper() + VERBS[verb][1:] + ".",
        epilog="example:\n" + module.EXAMPLE,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    module.configure(parser)
    add_common_flags(parser)
    args = parser.parse_args(words)
    args.command = shlex.join(["confide", verb, *(word for word in words if word not in ("--json", "--quiet"))])
    if verb == "doctor" and module.missing_packages():
        return int(module.run(args))  # `guarded` imports some of what may be missing
    return guarded(module.run if verb == "list" else _with_torch(module.run), args)


def _with_torch(run: Callable[[argparse.Namespace], int | None]) -> Callable[[argparse.Namespace], int | None]:
    """The verb, with torch loaded while the garbage collector is off: none of it is garbage, and looking takes time."""

    def loaded(args: argparse.Namespace) -> int | None:
        if "torch" not in sys.modules:
            gc.disable()
            import_module("torch")
            gc.freeze()
            gc.enable()
        return run(args)

    return loaded


def guarded(run: Callable[[argparse.Namespace], int | None], args: argparse.Namespace) -> int:
    """Run a verb; bad input becomes one line and status 1."""
    from confide.checks import InputError, MissingExtra, OptionError, printable
    from confide.progress import Progress

    Progress.quiet = Progress.quiet or args.quiet
    Progress.result = getattr(args, "out", None) or ""
    try:
        return run(args) or 0
    except (InputError, OptionError, MissingExtra) as error:
        print(f"confide: {printable(str(error))}", file=sys.stderr)
    except BrokenPipeError:
        raise  # `main` knows whether it is the output's
    except OSError as error:
        where = f" ({error.filename})" if error.filename else ""
        line = printable(f"{error.strerror or error}{where}")
        print(f"confide: {line}; nothing already written was changed", file=sys.stderr)
    except MemoryError as error:
        print(f"confide: {_out_of_memory(str(error))}", file=sys.stderr)
    except RuntimeError as error:
        from confide.models.device import is_out_of_memory

        if not is_out_of_memory(error):
            raise
        print(f"confide: {_out_of_memory(str(error))}", file=sys.stderr)
    finally:
        Progress.result = ""
    return 1


def _out_of_memory(message: str) -> str:
    """One line for work that needs more memory than there is."""
    first = (message.strip().splitlines() or ["no more could be had"])[0]
    return f"there is not enough memory ({first[:200]}); take fewer samples at a time, or smaller options"
