"""Registry and Method: a word of the config -> function, paper, options and corners.

The signature is the schema: keyword-only arguments with a default are options (config, command line, docs); those
without one are needs, which the caller must supply.
"""

from __future__ import annotations

import inspect
import math
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import MISSING, dataclass, field, fields
from functools import cached_property
from importlib import import_module
from typing import TYPE_CHECKING, Any, Generic, NamedTuple, TypeVar

from confide.checks import InputError, OptionError, check_choice, check_kind, check_number, check_options, did_you_mean

if TYPE_CHECKING:
    from confide.types import JsonObject, Options

F = TypeVar("F", bound=Callable[..., Any])


@dataclass(frozen=True, kw_only=True)
class MethodSpec:
    """What a family says about each of its methods beside the signature; a family with such facts subclasses it.

    A keyword of the decorator that is no field is refused when the method is registered. Fields that hold a function
    are left out of listings.
    """

    def as_dict(self) -> JsonObject:
        """Field -> value, for listings: no functions, and optional fields only where they differ from the default."""
        facts = {}
        for entry in fields(self):
            value = getattr(self, entry.name)
            required = entry.default is MISSING and entry.default_factory is MISSING
            default = entry.default_factory() if entry.default_factory is not MISSING else entry.default
            if not callable(value) and (required or value != default):
                facts[entry.name] = value
        return facts


class Interval(NamedTuple):
    """Where the values of an option lie; an open end is not one of them."""

    low: float
    high: float = math.inf
    low_open: bool = False
    high_open: bool = False


Ranges = Mapping[str, Interval | tuple[float, float]]
"""Option -> where its values lie; a pair is a closed interval."""


@dataclass(frozen=True, kw_only=True)
class OptionSpec(MethodSpec):
    """A method whose options have limits that the registry checks: see `Method.checked`."""

    ranges: Ranges = field(default_factory=dict)
    choices: Mapping[str, tuple[Any, ...]] = field(default_factory=dict)
    aliases: Mapping[str, str] = field(default_factory=dict)
    """Another spelling of an option -> the option."""
    check: Callable[[Options], object] | None = None
    """Refuses values that ranges and choices cannot tell; it gets all options, defaults among them."""
    from_code: tuple[str, ...] = ()
    """Options that hold records or arrays: a program may give them, a config cannot."""


S = TypeVar("S", bound=MethodSpec, covariant=True)


class Advice(NamedTuple):
    """What a method's docstring says to someone who must choose; empty where it says nothing."""

    when: str
    when_not: str
    differs: str
    """How it differs from its paper or from the released code."""


ADVICE = ("When: ", "When not: ", "Differs from ")
"""How the lines of a docstring begin that hold the fields of `Advice`."""


@dataclass(frozen=True)
class Method(Generic[S]):
    """One registered method of a family; `spec` holds what the family says about it."""

    word: str
    family: str
    function: Callable[..., Any]
    paper: str
    spec: S
    corners: tuple[Options, ...] = ()

    @property
    def summary(self) -> str:
        """The first line of the docstring: what it is, and its formula."""
        return (inspect.getdoc(self.function) or "").split("\n", 1)[0]

    @property
    def advice(self) -> Advice:
        """When to take it and when not, and how it differs from its paper: lines of the docstring."""
        text, ends = inspect.getdoc(self.function) or "", "|".join(ADVICE)
        lines = (re.search(rf"^{head}(.+?)(?=\n\n|\n(?:{ends})|\Z)", text, re.M | re.S) for head in ADVICE)
        return Advice(*(re.sub(r"\s+", " ", line[1]) if line else "" for line in lines))

    @cached_property
    def options(self) -> Options:
        """Option name -> default."""
        return {
            p.name: p.default
            for p in inspect.signature(self.function).parameters.values()
            if p.kind is p.KEYWORD_ONLY and p.default is not p.empty
        }

    @cached_property
    def needs(self) -> tuple[str, ...]:
        """Keyword-only arguments without a default: what the caller supplies with each call."""
        return tuple(
            p.name
            for p in inspect.signature(self.function).parameters.values()
            if p.kind is p.KEYWORD_ONLY and p.default is p.empty
        )

    def named(self, positional: tuple[Any, ...], options: Options) -> Options:
        """Options by name; those given by position are taken in the order of the signature."""
        if len(positional) > len(self.options):
            known = ", ".join(self.options) or "none"
            raise OptionError(
                f"{self.family} '{self.word}' takes these options by position: {known}; got {len(positional)} of them"
            )
        placed = dict(zip(self.options, positional, strict=False))
        for name in placed:
            if name in options:
                raise OptionError(f"{self.family} '{self.word}' got its option '{name}' twice; give it by name only")
        return {**placed, **options}

    def checked(self: Method[OptionSpec], values: Options) -> Options:
        """Options as plain Python values; refuses unknown names and values outside `ranges` and `choices`."""
        aliases, ranges, choices = self.spec.aliases, self.spec.ranges, self.spec.choices
        options = {aliases.get(name, name): value for name, value in values.items()} if aliases else dict(values)
        self.check_options(options)
        for name, value in options.items():
            where = f"{name} of {self.family} '{self.word}'"
            if name in ranges:
                options[name] = check_number(value, where, self.options[name], *Interval(*ranges[name]))
            elif isinstance(self.options.get(name), bool):
                check_choice(value, (True, False), where)
                options[name] = bool(value)
            if name in choices:
                check_choice(value, choices[name], where)
        if self.spec.check is not None:
            self.spec.check({**self.options, **options})
        return options

    def check_options(self, options: Options) -> None:
        """Refuse option names that this method does not have."""
        check_options(self.word, self.family, options, (*self.options, *self.needs))

    def check_values(self, options: Options) -> None:
        """Refuse names, and values that the signature or the limits do not allow: known before any work."""
        parameters = inspect.signature(self.function).parameters
        for name, value in options.items():
            where = f"{name} of {self.family} '{self.word}'"
            if name in self.needs:
                raise OptionError(f"{where} comes with every call; leave it out here")
            if isinstance(self.spec, OptionSpec) and name in self.spec.from_code:
                raise InputError(f"{where} cannot stand in a config: it is a record or an array; pass it from Python")
            if name in parameters:  # or it is another spelling
                check_kind(value, str(parameters[name].annotation), where)
        if isinstance(self.spec, OptionSpec):
            self.checked(options)  # type: ignore[misc]
        self.check_options(options)


class Registry(Generic[S]):
    """The methods of one family, sorted by word: which file registers first makes no difference."""

    def __init__(self, family: str, spec: type[S], *, elsewhere: str = "") -> None:
        """`elsewhere` names a module of a later package that registers more; it is imported at the first look-up."""
        self.family, self.spec, self._elsewhere = family, spec, elsewhere
        self._methods: dict[str, Method[S]] = {}

    def _all(self) -> dict[str, Method[S]]:
        if self._elsewhere:
            module, self._elsewhere = self._elsewhere, ""
            import_module(module)
        return self._methods

    def add(self, word: str, *, paper: str, corners: tuple[Options, ...] = (), **spec: Any) -> Callable[[F], F]:
        """Decorator that registers a function (or a class with state) under a word.

        Args:
            paper: author, year and identifier of the source.
            corners: option values at their limits; conformance tests run them all.
            spec: fields of the family's spec, such as `better="lower"`; others are refused.
        """
        known = self.spec(**spec)

        def register(function: F) -> F:
            if word in self._methods:
                raise ValueError(f"{self.family} '{word}' is registered twice")
            self._methods[word] = Method(word, self.family, function, paper, known, corners)
            return function

        return register

    def get(self, word: str) -> Method[S]:
        """The method of that word, or an error with the nearest one."""
        methods = self._all()
        if word not in methods:
            raise InputError(f"no {self.family} named '{word}'; {did_you_mean(word, methods)}")
        return methods[word]

    def names(self) -> tuple[str, ...]:
        """All words, sorted."""
        return tuple(sorted(self._all()))

    def __iter__(self) -> Iterator[Method[S]]:
        return iter([self._methods[word] for word in self.names()])

    def __len__(self) -> int:
        return len(self._all())

    def __contains__(self, word: object) -> bool:
        return word in self._all()
