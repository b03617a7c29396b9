"""Registry and Method: a word of the config -> function, paper, options and corners.

The signature is the schema: keyword-only arguments with a default are options (config, command line, docs); those
without one are needs, which the caller must supply.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, TypeVar

from confide.checks import InputError, OptionError, check_choice, check_number, check_options, did_you_mean

F = TypeVar("F", bound=Callable[..., Any])


@dataclass(frozen=True)
class Method:
    """One registered method of a family."""

    word: str
    family: str
    function: Callable[..., Any]
    paper: str
    corners: tuple[Mapping[str, Any], ...] = ()
    facts: Mapping[str, Any] = field(default_factory=dict)

    @property
    def summary(self) -> str:
        """The first line of the docstring: what it is, and its formula."""
        return (inspect.getdoc(self.function) or "").split("\n", 1)[0]

    @cached_property
    def options(self) -> dict[str, Any]:
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

    def named(self, positional: tuple[Any, ...], options: Mapping[str, Any]) -> dict[str, Any]:
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

    def checked(self, given: Mapping[str, Any]) -> dict[str, Any]:
        """Options as plain Python values; refuses unknown names and values outside `ranges` and `choices`."""
        aliases = self.facts.get("aliases", {})
        options = {aliases.get(name, name): value for name, value in given.items()} if aliases else dict(given)
        self.check_options(options)
        ranges, choices = self.facts.get("ranges", {}), self.facts.get("choices", {})
        for name, value in options.items():
            where = f"{name} of {self.family} '{self.word}'"
            if name in ranges:
                options[name] = check_number(value, where, self.options[name], *ranges[name])
            elif isinstance(self.options.get(name), bool):
                check_choice(value, (True, False), where)
                options[name] = bool(value)
            if name in choices:
                check_choice(value, choices[name], where)
        return options

    def check_options(self, given: Mapping[str, Any]) -> None:
        """Refuse option names that this method does not have."""
        check_options(self.word, self.family, given, (*self.options, *self.needs))


class Registry:
    """The methods of one family, sorted by word: which file registers first makes no difference."""

    def __init__(self, family: str) -> None:
        self.family = family
        self._methods: dict[str, Method] = {}

    def add(
        self, word: str, *, paper: str, corners: tuple[Mapping[str, Any], ...] = (), **facts: Any
    ) -> Callable[[F], F]:
        """Decorator that registers a function (or a class with state) under a word.

        Args:
            paper: author, year and identifier of the source.
            corners: option values at their limits; conformance tests run them all.
            facts: what else the family tells about its methods, such as `better="lower"`.
        """

        def register(function: F) -> F:
            if word in self._methods:
                raise ValueError(f"{self.family} '{word}' is registered twice")
            self._methods[word] = Method(word, self.family, function, paper, corners, facts)
            return function

        return register

    def get(self, word: str) -> Method:
        """The method of that word, or an error with the nearest one."""
        if word not in self._methods:
            raise InputError(f"no {self.family} named '{word}'; {did_you_mean(word, self._methods)}")
        return self._methods[word]

    def names(self) -> tuple[str, ...]:
        """All words, sorted."""
        return tuple(sorted(self._methods))

    def __iter__(self) -> Iterator[Method]:
        return iter([self._methods[word] for word in self.names()])

    def __len__(self) -> int:
        return len(self._methods)

    def __contains__(self, word: object) -> bool:
        return word in self._methods
