"""The steep slope oracle at its own line."""

from confide.trust import fit


def test_steep_slope_separates_at_its_own_threshold(hidden_errors):
    val, features = hidden_errors()
    test, rows = hidden_errors(seed=1, split="test")
    z = fit("steep_slope", val, features, epochs=40, learning_rate=3e-2)(test, rows)
    correct = test.facts.correct
    assert float((z[correct] > 0).float().mean()) > 0.8
    assert float((z[~correct] <= 0).float().mean()) > 0.5


def test_a_larger_alpha_neg_catches_more_errors(hidden_errors):
    val, features = hidden_errors()
    test, rows = hidden_errors(seed=1, split="test")
    wrong = ~test.facts.correct
    caught = [
        float((fit("steep_slope", val, features, epochs=20, alpha_neg=a)(test, rows)[wrong] <= 0).float().mean())
        for a in (0.5, 2.0, 6.0)
    ]
    assert caught[0] < caught[1] < caught[2]
