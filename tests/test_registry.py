from collections.abc import Callable
from dataclasses import dataclass

import pytest

from confide.checks import InputError, OptionError
from confide.registry import MethodSpec, Registry


@dataclass(frozen=True, kw_only=True)
class Spec(MethodSpec):
    better: str
    slow: bool = False
    value: Callable[..., float] = max


def make() -> Registry[Spec]:
    registry = Registry("loss", Spec)

    @registry.add("focal", paper="Lin et al., 2017", corners=({"gamma": 0.0},), better="lower")
    def focal(logits: object, labels: object, *, weights: object, gamma: float = 3.0) -> None:
        """Focal loss, in one line.

        Args:
            gamma: how fast sure samples fade.
        """

    return registry


def test_the_signature_is_the_schema():
    method = make().get("focal")
    assert method.options == {"gamma": 3.0}
    assert method.needs == ("weights",)
    assert method.summary == "Focal loss, in one line."
    assert method.spec == Spec(better="lower")
    assert method.spec.as_dict() == {"better": "lower"}


def test_a_misspelt_fact_of_a_method_is_refused():
    with pytest.raises(TypeError, match="beter"):
        make().add("dice", paper="x", beter="lower")


def test_an_unknown_word_names_the_nearest_one():
    with pytest.raises(InputError, match="no loss named 'fokal'; did you mean 'focal'"):
        make().get("fokal")


def test_an_unknown_option_names_the_nearest_one():
    with pytest.raises(OptionError, match="loss 'focal' has no option 'gama'; did you mean 'gamma'"):
        make().get("focal").check_options({"gama": 1.0})


def test_a_word_is_registered_once():
    registry = make()
    with pytest.raises(ValueError, match="registered twice"):
        registry.add("focal", paper="again", better="lower")(lambda: None)
