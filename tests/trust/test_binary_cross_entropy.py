"""The cross-entropy oracle, elementwise and with the released broadcasting error."""

from confide.trust import fit


def test_the_released_form_trusts_everything(hidden_errors):
    val, features = hidden_errors()
    test, rows = hidden_errors(seed=1, split="test")
    z = fit("binary_cross_entropy", val, features, epochs=40, learning_rate=3e-2, form="released")(test, rows)
    assert float((z > 0).float().mean()) > 0.99
