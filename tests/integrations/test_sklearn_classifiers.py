"""Classifiers for scikit-learn: its own checks, calibration, promises, pipelines, weights and routing."""

import numpy as np
import pytest
import sklearn
from sklearn.base import clone
from sklearn.datasets import make_classification
from sklearn.ensemble import RandomForestClassifier
from sklearn.linear_model import LogisticRegression
from sklearn.naive_bayes import GaussianNB
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.svm import LinearSVC
from sklearn.utils.estimator_checks import check_estimator

from confide import Predictions, calibrators, metrics
from confide.checks import InputError
from confide.integrations.sklearn import CalibratorTransformer, ConfideClassifier, SelectiveClassifier, SetClassifier

WEIGHTS = "folds and holdouts are drawn from rows, so a row of weight 2 is not the same as two rows"
INHERENT = {
    "check_sample_weight_equivalence_on_dense_data": WEIGHTS,
    "check_sample_weight_equivalence_on_sparse_data": WEIGHTS,
}
COLUMNS = "the columns are outputs of a classifier, one a class; these checks give more or fewer columns than classes"
OUTPUTS = dict.fromkeys(
    (
        "check_estimators_overwrite_params",
        "check_estimators_fit_returns_self",
        "check_readonly_memmap_input",
        "check_estimators_nan_inf",
        "check_fit2d_1feature",
    ),
    COLUMNS,
)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(
    ("estimator", "inherent"),
    [
        (ConfideClassifier(cv=2), INHERENT),
        (
            SelectiveClassifier(risk=0.3),
            {**INHERENT, "check_classifiers_train": "predict may abstain, so it is not the argmax of predict_proba"},
        ),
        (SetClassifier(), INHERENT),
        (CalibratorTransformer(inputs="logits"), OUTPUTS),
    ],
    ids=lambda value: type(value).__name__,
)
def test_scikit_learns_own_checks_fail_only_where_they_must(estimator, inherent):
    results = check_estimator(estimator, on_fail=None)
    assert {result["check_name"] for result in results if result["status"] == "failed"} == set(inherent)


@pytest.fixture(scope="module")
def data():
    X, y = make_classification(3000, 12, n_informative=4, n_redundant=6, n_classes=3, flip_y=0.15, random_state=0)
    return X[:1500], np.array(["a", "b", "c"])[y[:1500]], X[1500:], np.array(["a", "b", "c"])[y[1500:]]


def ece(classifier, X, y):
    return float(metrics.ece(Predictions.from_probs(classifier.predict_proba(X), y, class_names=("a", "b", "c"))))


@pytest.mark.parametrize("calibrator", ["temperature", "isotonic", "choose"])
def test_an_overconfident_classifier_becomes_calibrated(data, calibrator):
    X, y, X_test, y_test = data
    plain = GaussianNB().fit(X, y)
    calibrated = ConfideClassifier(GaussianNB(), calibrator, cv=3).fit(X, y)
    assert ece(calibrated, X_test, y_test) < 0.6 * ece(plain, X_test, y_test)
    assert set(calibrated.predict(X_test)) <= {"a", "b", "c"}
    fitted = ConfideClassifier(plain, calibrator, cv="prefit").fit(X_test, y_test)
    assert fitted.estimator_ is plain


def test_scores_of_a_decision_function_are_taken_as_what_they_are(data):
    X, y, X_test, y_test = data
    fitted = ConfideClassifier(LinearSVC(), cv=3).fit(X, y)
    assert ece(fitted, X_test, y_test) < 0.08
    binary = ConfideClassifier(LinearSVC(), "vector", cv=3).fit(X, y == "a")
    assert binary.predict_proba(X_test).shape == (1500, 2)


def test_it_is_cloned_and_works_in_a_pipeline(data):
    X, y, X_test, _ = data
    pipeline = make_pipeline(StandardScaler(), ConfideClassifier(LogisticRegression(), cv=3))
    again = clone(pipeline).set_params(confideclassifier__calibrator="vector").fit(X, y)
    assert again[-1].calibrator_.word == "vector"
    np.testing.assert_allclose(again.predict_proba(X_test).sum(axis=1), 1.0)


def test_weights_reach_the_classifier_plainly_and_by_routing(data):
    X, y, X_test, _ = data
    weights = np.where(y == "a", 5.0, 1.0)
    plain = ConfideClassifier(LogisticRegression(), cv=3).fit(X, y, sample_weight=weights).predict_proba(X_test)
    unweighted = ConfideClassifier(LogisticRegression(), cv=3).fit(X, y).predict_proba(X_test)
    assert (plain[:, 0] - unweighted[:, 0]).mean() > 0.05
    with sklearn.config_context(enable_metadata_routing=True):
        inner = LogisticRegression().set_fit_request(sample_weight=True)
        routed = ConfideClassifier(inner, cv=3).fit(X, y, sample_weight=weights).predict_proba(X_test)
    np.testing.assert_allclose(routed, plain)


def test_an_abstaining_classifier_keeps_its_promise():
    broken = 0
    for seed in range(20):
        X, y = make_classification(6000, 8, n_informative=4, class_sep=1.5, flip_y=0.1, random_state=seed)
        fitted = SelectiveClassifier(LogisticRegression(), risk=0.08, confidence=0.8, random_state=seed)
        fitted.fit(X[:2000], y[:2000])
        answers = fitted.predict(X[2000:])
        np.testing.assert_array_equal(answers != -1, fitted.accept(X[2000:]))
        broken += (answers != y[2000:])[answers != -1].mean() > 0.08 if (answers != -1).any() else 0
    assert broken <= 9  # at most one in five may break; ten of twenty have a probability below 0.003


def test_abstaining_is_said_in_the_words_of_the_classes(data):
    X, y, X_test, _ = data
    never = SelectiveClassifier(RandomForestClassifier(5, random_state=0), risk=1e-4).fit(X, y)
    assert set(never.predict(X_test)) == {"abstain"}
    assert "even without errors it takes 29956 accepted samples" in never.operating_point_.note
    some = SelectiveClassifier(risk=0.35, abstain="?", random_state=0).fit(X, y)
    assert {"?", "a"} <= set(some.predict(X_test))


def test_sets_hold_the_true_class(data):
    X, y, X_test, y_test = data
    fitted = SetClassifier(LogisticRegression(), coverage=0.9, random_state=0).fit(X, y)
    members = fitted.predict_set(X_test)
    covered = members[np.arange(1500), np.searchsorted(fitted.classes_, y_test)].mean()
    assert 0.86 < covered < 0.95
    assert members.sum(axis=1).mean() < 3


def test_bad_requests_get_one_line(data):
    X, y, _, _ = data
    with pytest.raises(ValueError, match="needs at least 5 samples of each class; take fewer folds"):
        ConfideClassifier().fit(X[:9], ["a", "b", "b"] * 3)
    with pytest.raises(InputError, match="among the classes of the fitted classifier, got 'd'"):
        ConfideClassifier(LogisticRegression().fit(X, y), cv="prefit").fit(X[:2], ["a", "d"])
    with pytest.raises(ValueError, match="leave at least 2 classes"):
        ConfideClassifier().fit(X, y, sample_weight=np.where(y == "a", 1.0, 0.0))


def test_a_transformer_names_its_columns_and_doubts_probabilities(data):
    X, y, _, _ = data
    probs = LogisticRegression().fit(X, y).predict_proba(X)
    transformer = CalibratorTransformer().fit(probs, y)
    assert transformer.get_feature_names_out().tolist() == ["prob_a", "prob_b", "prob_c"]
    assert calibrators.fit("temperature", Predictions.from_probs(probs, np.searchsorted(["a", "b", "c"], y))).word
    with pytest.warns(UserWarning, match="as probabilities do"):
        CalibratorTransformer(inputs="logits").fit(probs, y)
    pytest.importorskip("pandas")
    frame = transformer.set_output(transform="pandas").transform(probs)
    assert list(frame.columns) == ["prob_a", "prob_b", "prob_c"]
