import numpy as np
import pytest

from confide import difficulty
from confide.checks import InputError


def test_golden_vector(golden):
    inputs, expected = golden("inputs_G"), golden("fcp_loss")
    scores = difficulty.score("correctness", inputs["probs"], inputs["labels"])
    np.testing.assert_allclose(scores.values, expected["difficulty_1_minus_freq"], atol=1e-12)


def test_one_member_is_the_golden_of_that_member(golden):
    inputs, expected = golden("inputs_G"), golden("fcp_loss")
    scores = difficulty.score("correctness", inputs["probs"], inputs["labels"], members=(1,))
    np.testing.assert_allclose(1 - scores.values, expected["freq_correct_per_member"][1], atol=1e-12)


def test_labels_are_needed(golden):
    with pytest.raises(InputError, match="pass labels"):
        difficulty.score("correctness", golden("inputs_G")["probs"])


def test_a_history_of_counts_gives_the_same():
    log = difficulty.CountLog(np.arange(3), np.array([0, 5, 10]), epochs=10)
    assert difficulty.score("correctness", log).values.tolist() == [1.0, 0.5, 0.0]
    with pytest.raises(InputError, match="give 'correctness' only"):
        difficulty.score("loss", log)
    with pytest.raises(InputError, match=r"3 numbers in \[0, 4\]"):
        difficulty.score("correctness", difficulty.CountLog(np.arange(3), np.array([0, 5, 10]), epochs=4))
