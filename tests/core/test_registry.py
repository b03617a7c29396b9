import pytest

from confide.checks import InputError, OptionError
from confide.registry import Registry


def make() -> Registry:
    registry = Registry("loss")

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
    assert method.facts == {"better": "lower"}


def test_an_unknown_word_names_the_nearest_one():
    with pytest.raises(InputError, match="no loss named 'fokal'; did you mean 'focal'"):
        make().get("fokal")


def test_an_unknown_option_names_the_nearest_one():
    with pytest.raises(OptionError, match="loss 'focal' has no option 'gama'; did you mean 'gamma'"):
        make().get("focal").check_options({"gama": 1.0})


def test_a_word_is_registered_once():
    registry = make()
    with pytest.raises(ValueError, match="registered twice"):
        registry.add("focal", paper="again")(lambda: None)
