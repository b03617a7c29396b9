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

from confide.core.door import InputError, check_options, did_you_mean

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

    def check_options(self, given: Mapping[str, Any]) -> None:
        """Refuse option names that this method does not have."""
        check_options(self.word, self.family, given, (*self.options, *self.needs))


class Registry:
    """The methods of one family by word, in the order of their registration."""

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
        """All words, in order of registration."""
        return tuple(self._methods)

    def __iter__(self) -> Iterator[Method]:
        return iter(self._methods.values())

    def __len__(self) -> int:
        return len(self._methods)

    def __contains__(self, word: object) -> bool:
        return word in self._methods
