"""Checks on what comes in, and the words of every error: what must hold, what came, where; what to do."""

from __future__ import annotations

import ast
import difflib
import inspect
from collections.abc import Callable, Iterable, Mapping
from dataclasses import fields
from functools import cache, wraps
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar

import numpy as np

if TYPE_CHECKING:  # a check needs tensors, an error does not: `confide list` loads no torch
    from torch import Tensor

    from confide.types import Options


class InputError(ValueError):
    """A value that came in is not what must hold; the message is one line for a person."""


class OptionError(TypeError):
    """An option that the method does not have."""


class MissingExtra(ImportError):
    """An optional package is needed; the message names the extra to install."""

    def __init__(self, package: str, extra: str, purpose: str) -> None:
        super().__init__(f"{purpose} needs the package '{package}'; install it with: pip install 'confide[{extra}]'")


def printable(text: str) -> str:
    """Text on one line for a terminal: what could steer it, such as an escape in someone's name, becomes U+FFFD."""
    return "".join(c if c.isprintable() else "\ufffd" for c in " ".join(text.split()))


def number_of_digits(text: str) -> int | None:
    """The number that up to eleven plain digits are; None for any other text, such as ² or 5,000 digits."""
    return int(text) if text.isascii() and text.isdigit() and len(text) < 12 else None


def did_you_mean(word: str, known: Iterable[str]) -> str:
    """The tail of an unknown-word message: the nearest known word, or all of them.

    Args:
        word: what came.
        known: words that would have been understood.

    Returns:
        Words to stand at the end of an error.

    Example:
        >>> from confide.checks import did_you_mean
        >>> did_you_mean("temprature", ["temperature", "vector"])
        "did you mean 'temperature'?"
    """
    words = sorted(known)
    if word in ("sample_weight", "sample_weights"):
        return "it is called 'weights' here: Predictions(logits, labels, weights=...)"
    near = difflib.get_close_matches(word, words, n=1)
    return f"did you mean '{near[0]}'?" if near else f"known: {', '.join(words) or 'none'}"


def as_tensor(values: Any, name: str) -> Tensor:
    """A tensor over tensors, arrays, lists, data-frame columns; shares memory where it can."""
    import torch

    if isinstance(values, torch.Tensor):
        if values.is_complex():
            raise InputError(f"{name} must be real numbers, got {values.dtype}; take the part that is meant")
        return values.detach()
    if hasattr(values, "to_numpy"):
        values = values.to_numpy()
    try:
        array = np.asarray(values)
        array = _numbers_of(array) if array.dtype == object else array
    except (ValueError, OverflowError) as error:
        why = "rows are of different lengths" if "inhomogeneous" in str(error) else error
        raise InputError(f"{name} must be an array of numbers, but: {why}; convert them first") from None
    if array.dtype.kind == "c":
        raise InputError(f"{name} must be real numbers, got {array.dtype}; take the part that is meant")
    if array.dtype.kind in "US":
        first = f", such as '{str(array.flat[0])[:24]}'" if array.size else ""
        raise InputError(f"{name} must be numbers, got text{first}; convert them first")
    if array.dtype.kind not in "fiub":
        raise InputError(f"{name} must be numbers, got {array.dtype} values; convert them first")
    if array.dtype.kind == "u" and array.dtype.itemsize > 1:
        # Few operations of torch take these.
        if array.dtype.itemsize == 8 and array.size and int(array.max()) > np.iinfo(np.int64).max:
            raise InputError(f"{name} must be at most {np.iinfo(np.int64).max}, got {int(array.max())}; convert them")
        array = array.astype(np.int64)
    if array.dtype.itemsize > 8:
        array = array.astype(np.float64)
    # A column of a structured array steps over the others: by bytes, not by whole numbers.
    if not array.flags.writeable or any(step < 0 or step % array.itemsize for step in array.strides):
        array = array.copy()
    return torch.from_numpy(array if array.dtype.isnative else array.astype(array.dtype.newbyteorder("=")))


def _numbers_of(array: np.ndarray[Any, np.dtype[Any]]) -> np.ndarray[Any, np.dtype[Any]]:
    """Numbers that a data frame holds as objects: rows of a list column, nullable columns with NaN for what is missing.

    Words are never read as numbers: then the array comes back as it is.
    """
    if array.ndim == 1 and len(array) and isinstance(array[0], (list, tuple, np.ndarray)):
        if len({len(row) if hasattr(row, "__len__") else -1 for row in array}) > 1:
            return array
        array = np.array([list(row) for row in array])
    if array.dtype != object:
        return array
    missing = np.array([value is None or type(value).__name__ == "NAType" for value in array.flat], dtype=bool)
    known = array.reshape(-1)[~missing]
    if not all(isinstance(value, (int, float, np.number, np.bool_)) for value in known):
        return array
    flat = np.full(array.size, np.nan)
    flat[~missing] = known.astype(np.float64)
    return flat.reshape(array.shape)


def tensor_with_graph(values: Any, name: str) -> Tensor:
    """Tensors as they are, with their graph; lists and arrays of numbers as tensors."""
    import torch

    if isinstance(values, torch.Tensor):
        return values
    if isinstance(values, np.ndarray):
        return as_tensor(values, name)
    try:
        return torch.as_tensor(values)
    except (TypeError, ValueError, RuntimeError):
        got = type(values).__name__
        raise InputError(f"{name} must be a tensor, or an array or list of numbers, got {got}; convert them") from None


def check_logits(logits: Tensor, name: str = "logits") -> Tensor:
    """Logits must be floating and n x c with at least two classes; integers are promoted to float32."""
    if logits.ndim != 2:
        raise InputError(f"{name} must be n x c (two dimensions), got shape {tuple(logits.shape)}; reshape them")
    if logits.shape[1] < 2:
        raise InputError(
            f"{name} must have at least two classes (columns), got {logits.shape[1]}; "
            "for n binary probabilities use Predictions.from_probs"
        )
    return logits if logits.is_floating_point() else logits.float()


def check_finite(values: Tensor, name: str) -> None:
    """Refuse NaN and infinity, naming the first row."""
    finite = values.isfinite()
    if bool(finite.all()):
        return
    where = (~finite).nonzero()[0].tolist()
    raise InputError(
        f"{name} must be finite, got {values[tuple(where)].item()} at sample {where[0]} of {len(values)}; "
        "drop that sample or mend the model that made it"
    )


MOST_CLASSES = 10_000_000
"""Where nothing else tells how many classes there are: tables by class would not fit into memory."""


def check_labels(labels: Tensor, n: int, num_classes: int | None, name: str = "labels") -> Tensor:
    """Labels must be n class indices in [0, num_classes); where the classes are not known, in [0, 10 million)."""
    if labels.ndim != 1 or len(labels) != n:
        raise InputError(f"{name} must be {n} class indices, got shape {tuple(labels.shape)}; give one per sample")
    if labels.is_floating_point():
        whole = labels.long()
        if not bool((whole == labels).all()):
            raise InputError(f"{name} must be whole class indices, got fractions; give integers")
        labels = whole
    labels = labels.long()
    if n:
        low, high = int(labels.min()), int(labels.max())
        most = MOST_CLASSES if num_classes is None else num_classes
        if low < 0 or high >= most:
            bad = int(((labels < 0) | (labels >= most)).nonzero()[0])
            raise InputError(
                f"{name} must lie in [0, {most}), got {int(labels[bad])} at sample {bad} of {n}; "
                f"{label_hint(low, high) if low < 0 or num_classes is not None else 'number the classes from 0'}"
            )
    return labels


def label_hint(low: int, high: int) -> str:
    """What to do about labels from `low` to `high` of which some are no class."""
    if low >= 1:
        return f"do labels start at 1? they go from {low} to {high} and none is 0; if so, subtract 1"
    if low < 0:
        return f"they go from {low} to {high}: give class indices from 0, and no sample whose class is not known"
    return "give one logit per class, and labels that are their positions, from 0"


def check_probs(probs: Tensor, name: str = "probs", tolerance: float = 1e-3) -> Tensor:
    """Probabilities must be finite, in [0, 1], with rows that sum to one, all within a tolerance.

    Returns:
        The same; rows with a value outside [0, 1] are brought inside and normalised, others stay to the last digit.
    """
    check_finite(probs, name)
    if not len(probs):
        return probs
    if bool((probs < -tolerance).any()) or bool((probs > 1 + tolerance).any()):
        bad = int(((probs < -tolerance) | (probs > 1 + tolerance)).any(dim=1).nonzero()[0])
        raise InputError(f"{name} must lie in [0, 1], got {probs[bad].tolist()[:4]} at sample {bad}; are these logits?")
    sums = probs.sum(dim=1)
    bad_rows = ((sums - 1).abs() > tolerance).nonzero()
    if len(bad_rows):
        row = int(bad_rows[0])
        raise InputError(
            f"{name} must sum to 1 in every row, got {float(sums[row]):.4g} at sample {row} of {len(probs)}; "
            "normalise them, or pass logits as logits"
        )
    outside = ((probs < 0) | (probs > 1)).any(dim=1)
    if not bool(outside.any()):
        return probs
    inside = probs.clamp_min(0)
    return (inside / inside.sum(dim=1, keepdim=True)).where(outside[:, None], probs)


def check_ids(ids: Any, n: int, name: str = "ids") -> np.ndarray[Any, np.dtype[Any]]:
    """Ids must be n unique integers or strings."""
    array = np.asarray(ids)
    if array.dtype == object:
        try:
            array = array.astype(np.str_)
        except ValueError:  # bytes that are no text
            raise InputError(f"{name} must be integers or strings, got other values; convert them") from None
    if array.shape != (n,):
        raise InputError(f"{name} must be {n} values, one per sample, got shape {array.shape}; give one id each")
    if array.dtype.kind not in "iuU":
        raise InputError(f"{name} must be integers or strings, got {array.dtype}; convert them")
    if array.dtype.kind in "iu" and (array[1:] > array[:-1]).all():  # far faster than sorting them
        return array
    unique, counts = np.unique(array, return_counts=True)
    if len(unique) != n:
        raise InputError(f"{name} must be unique, got {unique[counts > 1][0].item()!r} twice or more; rename one")
    return array


def check_weights(weights: Any, n: int, name: str = "weights") -> np.ndarray[Any, np.dtype[np.float64]]:
    """n finite numbers of 0 or more, not all of them 0."""
    values = as_tensor(weights, name)
    if values.shape != (n,):
        raise InputError(f"{name} must be {n} numbers, one per sample, got shape {tuple(values.shape)}; give one each")
    array: np.ndarray[Any, np.dtype[np.float64]] = values.double().cpu().numpy()
    bad = np.flatnonzero(~(np.isfinite(array) & (array >= 0)))
    if len(bad):
        raise InputError(
            f"{name} must be finite numbers of 0 or more, got {array[bad[0]]} at sample {bad[0]} of {n}; "
            "drop that sample or give it a weight of 0"
        )
    if n and not array.any():
        raise InputError(f"{name} must have one above 0, got {n} of 0; then no sample counts")
    return array


def check_choice(value: Any, choices: Iterable[Any], name: str) -> None:
    """An option must be one of the given words."""
    known = list(choices)
    if value not in known:
        raise InputError(f"{name} must be one of {', '.join(map(repr, known))}, got {value!r}")


def check_range(
    value: Any,
    name: str,
    low: float = -np.inf,
    high: float = np.inf,
    *,
    low_open: bool = False,
    high_open: bool = False,
) -> None:
    """A number must lie in an interval; NaN never does.

    Args:
        value: what came.
        name: what it is called in the error.
        low: the lower end.
        high: the upper end.
        low_open: whether the lower end itself is refused.
        high_open: whether the upper end itself is refused.

    Raises:
        InputError: what is no number, or lies outside.

    Example:
        >>> from confide.checks import check_range
        >>> check_range(1.5, "alpha", 0.0, 1.0)
        Traceback (most recent call last):
        confide.checks.InputError: alpha must lie in [0, 1], got 1.5
    """
    try:
        inside = (value > low if low_open else value >= low) and (value < high if high_open else value <= high)
    except TypeError:
        raise InputError(f"{name} must be a number, got {value!r}") from None
    if not inside:
        left, right = "(" if low_open or low == -np.inf else "[", ")" if high_open or high == np.inf else "]"
        raise InputError(f"{name} must lie in {left}{low:g}, {high:g}{right}, got {value!r}")


def check_number(
    value: Any, name: str, default: Any, low: float, high: float, low_open: bool = False, high_open: bool = False
) -> Any:
    """A number from low to high as a plain Python one: whole where the default is, None only where the default is."""
    if value is None and default is None:
        return None
    if isinstance(value, (np.integer, np.floating)):
        value = value.item()
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise InputError(f"{name} must be a number, got {value!r}")
    check_range(value, name, low, high, low_open=low_open, high_open=high_open)
    if not isinstance(default, int):
        return value
    if isinstance(value, float) and not value.is_integer():
        raise InputError(f"{name} must be a whole number, got {value!r}")
    return int(value)


SEEDS = 2**53
"""Seeds lie between minus this and this: numbers that every file format and library holds."""


def check_seed(value: Any, name: str = "seed") -> int:
    """A seed must be a whole number that every library takes."""
    if isinstance(value, bool) or not isinstance(value, (int, np.integer)) or abs(int(value)) > SEEDS:
        raise InputError(f"{name} must be a whole number from -2**53 to 2**53, got {repr(value)[:60]}")
    return int(value)


LONGEST_NAME = 80
"""Bytes of a name: files join two or three of them."""


def check_name(value: Any, name: str) -> str:
    """A word that files are named after: it must not lead out of its folder, nor be one that no folder takes."""
    if not isinstance(value, str) or not value:
        raise InputError(f"{name} must be a word, got {value!r}")
    odd = [letter for letter in value if letter in "/\\" or not letter.isprintable()]
    if odd or value.startswith(".") or len(value.encode("utf-8", "replace")) > LONGEST_NAME:
        raise InputError(
            f"{name} must be a word that a file can be named after: at most {LONGEST_NAME} bytes, no slash and no dot "
            f"first, got {value[:60]!r}; choose another"
        )
    return value


KINDS = {"int": "a whole number", "float": "a number", "str": "a word", "bool": "true or false", "None": "nothing"}
"""Words of an annotation that a plain value can be held against, and what they ask for."""


def check_kind(value: Any, annotation: str, name: str) -> None:
    """A plain value must be of one of the kinds of an annotation such as `float | None` or `tuple[str, ...]`.

    Parts of an annotation that no plain value can be held against, such as a record's name, let everything pass.
    """
    kind = _parsed(annotation)
    if kind is not None and not _fits(value, kind):
        raise InputError(f"{name} must be {_kind_words(kind)}, got {printable(repr(value)[:60])}")


R = TypeVar("R")


def check_record(record: R) -> R:
    """A dataclass made of a file's values, each of the kind that its field says."""
    for entry in fields(record):  # type: ignore[arg-type]
        check_kind(getattr(record, entry.name), str(entry.type), entry.name)
    return record


@cache
def _parsed(annotation: str) -> ast.expr | None:
    try:
        return ast.parse(annotation, mode="eval").body
    except SyntaxError:  # a class where its name would do
        return None


def _fits(value: Any, kind: ast.expr) -> bool:
    match kind:
        case ast.BinOp(left=left, right=right):
            return _fits(value, left) or _fits(value, right)
        case ast.Constant(value=None):
            return value is None
        case ast.Name(id=word) if word in KINDS:
            return _is_kind(value, word)
        case ast.Name(id="Options" | "JsonObject"):
            return isinstance(value, Mapping) and all(isinstance(key, str) for key in value)
        case ast.Subscript(value=ast.Name(id="tuple"), slice=ast.Tuple(elts=[inner, ast.Constant()])):
            return isinstance(value, (list, tuple)) and all(_fits(part, inner) for part in value)
        case ast.Subscript(value=ast.Name(id="tuple"), slice=ast.Tuple(elts=parts)):
            fitting = isinstance(value, (list, tuple)) and len(value) == len(parts)
            return fitting and all(_fits(part, own) for part, own in zip(value, parts, strict=True))
        case ast.Subscript(value=ast.Name(id="Mapping"), slice=ast.Tuple(elts=[_, inner])):
            pairs = value.items() if isinstance(value, Mapping) else [(None, None)]
            return all(isinstance(key, str) and _fits(part, inner) for key, part in pairs)
    return True


def _kind_words(kind: ast.expr) -> str:
    match kind:
        case ast.BinOp(left=left, right=right):
            return f"{_kind_words(left)} or {_kind_words(right)}"
        case ast.Subscript(value=ast.Name(id="tuple"), slice=ast.Tuple(elts=[inner, ast.Constant()])):
            return f"a list, each {_kind_words(inner)}"
        case ast.Subscript(value=ast.Name(id="tuple"), slice=ast.Tuple(elts=parts)):
            return f"a list of {', '.join(map(_kind_words, parts))}"
        case ast.Subscript(value=ast.Name(id="Mapping"), slice=ast.Tuple(elts=[_, inner])):
            return f"names, each with {_kind_words(inner)}"
        case ast.Name(id="Options" | "JsonObject"):
            return "values by name"
    word = ast.unparse(kind)
    return KINDS.get(word, word)


def _is_kind(value: Any, word: str) -> bool:
    if isinstance(value, bool) or value is None:
        return word == ("None" if value is None else "bool")
    if word == "int":
        whole = isinstance(value, int) or (isinstance(value, float) and value.is_integer())
        return whole and abs(value) < LARGEST_WHOLE
    if word == "float":
        return isinstance(value, float) or (isinstance(value, int) and abs(value) < LARGEST_NUMBER)
    return word == "str" and isinstance(value, str)


LARGEST_WHOLE = 2**63
"""Whole numbers of files and options are below it."""
LARGEST_NUMBER = 10**300
"""Whole numbers below it are floats too."""


def check_options(word: str, family: str, options: Options, known: Iterable[str]) -> None:
    """Every option given must be one the method has."""
    names = list(known)
    for name in options:
        if name not in names:
            hint = did_you_mean(name, names) if names or name.startswith("sample_weight") else "it takes none"
            raise OptionError(f"{family} '{word}' has no option '{name}'; {hint}")


P = ParamSpec("P")


def known_keywords(function: Callable[P, R]) -> Callable[P, R]:
    """The function, with an answer to a keyword that it does not have: the nearest of its own."""
    known = inspect.signature(function).parameters
    name = function.__qualname__.removesuffix(".__init__")

    @wraps(function)
    def checked(*args: P.args, **kwargs: P.kwargs) -> R:
        for word in kwargs:
            if word not in known:
                raise OptionError(f"{name}() has no keyword '{word}'; {did_you_mean(word, set(known) - {'self'})}")
        return function(*args, **kwargs)

    return checked
