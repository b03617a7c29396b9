"""Classifiers for scikit-learn: its own checks, calibration, promises, pipelines, weights and routing."""

import numpy as np
import pytest
import sklearn
from sklearn.base import clone
from sklearn.datasets import make_classification
from sklearn.ensemble import RandomForestClassifier
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import ShuffleSplit
from sklearn.naive_bayes import GaussianNB
from sklearn.neighbors import KNeighborsClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.svm import LinearSVC
from sklearn.utils import get_tags
from sklearn.utils.estimator_checks import check_estimator

from confide import Predictions, calibrators, metrics, operating_point
from confide.checks import InputError
from confide.integrations.sklearn import (
    CalibratorTransformer,
    ConfideClassifier,
    SelectiveClassifier,
    SetClassifier,
    outputs_of,
)

WEIGHTS = "holdouts are drawn from rows, so a row of weight 2 is not the same as two rows"
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
        (ConfideClassifier(cv=2), {}),
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


def test_one_fold_alone_is_enough(data):
    X, y, _, _ = data
    fold = ShuffleSplit(1, test_size=0.4, random_state=0)
    fitted = ConfideClassifier(LogisticRegression(), cv=fold).fit(X, y)
    ((train, held),) = fold.split(X, y)
    inner = LogisticRegression().fit(X[train], y[train])
    alone = ConfideClassifier(inner, cv="prefit").fit(X[held], y[held])
    assert fitted.calibrator_.temperature == pytest.approx(alone.calibrator_.temperature)


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


def test_weights_count_in_the_calibrator_and_the_threshold_too(data):
    X, y, _, _ = data
    fitted = LogisticRegression().fit(X, y)
    weights = np.random.default_rng(0).integers(0, 3, len(y)).astype(float)
    rows = np.repeat(np.arange(len(y)), weights.astype(int))
    by_weight = ConfideClassifier(fitted, cv="prefit").fit(X, y, weights)
    by_rows = ConfideClassifier(fitted, cv="prefit").fit(X[rows], y[rows])
    temperatures = [float(each.calibrator_.values["temperature"]) for each in (by_weight, by_rows)]
    assert temperatures[0] == pytest.approx(temperatures[1], rel=1e-6)
    assert temperatures[0] != pytest.approx(
        float(ConfideClassifier(fitted, cv="prefit").fit(X, y).calibrator_.values["temperature"]), rel=1e-4
    )
    threshold = SelectiveClassifier(fitted, risk=0.2, holdout="prefit").fit(X, y, weights).operating_point_
    assert threshold.accepted < len(y)
    held_out = outputs_of(fitted, X, fitted.classes_, np.searchsorted(fitted.classes_, y))
    assert threshold == operating_point(held_out, 0.2, weights=weights) != operating_point(held_out, 0.2)


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


SMALL = np.random.default_rng(0).normal(size=(40, 3)) + (np.arange(40) % 2)[:, None]
SIDES = np.arange(40) % 2


class Remembers(LogisticRegression):
    """A classifier that tells what its fit was given."""

    def fit(self, X, y, sample_weight=None):
        self.given = None if sample_weight is None else np.asarray(sample_weight).tolist()
        return super().fit(X, y, sample_weight)


def test_two_classes_are_enough_and_one_is_not():
    assert ConfideClassifier(cv=2).fit(SMALL, SIDES).classes_.tolist() == [0, 1]
    with pytest.raises(ValueError, match="at least 2 classes, got 1 class"):
        ConfideClassifier(cv=2).fit(SMALL, np.zeros(40, int))
    with pytest.raises(ValueError, match="at least 2 classes, got 1 class"):
        ConfideClassifier(SimpleConstant().fit(SMALL, SIDES), cv="prefit").fit(SMALL, np.zeros(40, int))


class SimpleConstant(LogisticRegression):
    """Knows one class."""

    def fit(self, X, y):
        super().fit(X, y)
        self.classes_ = np.array([0])
        return self


def test_folds_need_as_many_samples_of_each_class_and_no_more():
    few = np.r_[np.zeros(37, int), np.ones(3, int)]
    assert ConfideClassifier(cv=3).fit(SMALL, few).calibrator_.word == "temperature"
    with pytest.raises(ValueError, match="at least 4 samples of each class"):
        ConfideClassifier(cv=4).fit(SMALL, few)
    splits = [(np.arange(20), np.arange(20, 40)), (np.arange(20, 40), np.arange(20))]
    assert ConfideClassifier(cv=splits).fit(SMALL, SIDES).calibrator_.word == "temperature"


def test_folds_of_an_integer_hold_every_class():
    sorted_labels = np.repeat([0, 1], 20)  # without strata each fold would lack a class in training
    shown = ConfideClassifier(Remembers(), cv=2).fit(SMALL, sorted_labels)
    again = ConfideClassifier(Remembers(), cv=2).fit(SMALL, sorted_labels)
    assert np.array_equal(shown.predict_proba(SMALL), again.predict_proba(SMALL))


def test_weights_of_a_classifier_are_as_given_or_none_at_all():
    weights = np.linspace(1, 2, 40)
    assert ConfideClassifier(Remembers(), cv=2).fit(SMALL, SIDES).estimator_.given is None
    assert ConfideClassifier(Remembers(), cv=2).fit(SMALL, SIDES, weights).estimator_.given == weights.tolist()
    with pytest.raises(ValueError, match="takes no sample_weight"):
        ConfideClassifier(KNeighborsClassifier(), cv=2).fit(SMALL, SIDES, weights)
    ConfideClassifier(KNeighborsClassifier(), cv=2).fit(SMALL, SIDES)
    two = np.where(np.arange(40) < 2, 1.0, 0.0)  # a sample of each class
    assert (
        SelectiveClassifier(GaussianNB(), holdout="prefit")
        .set_params(estimator=GaussianNB().fit(SMALL, SIDES))
        .fit(SMALL, SIDES, two)
    )
    with pytest.raises(ValueError, match="leave at least 2 classes"):
        ConfideClassifier().fit(SMALL, SIDES, np.where(np.arange(40) < 1, 1.0, 0.0))


def test_tags_and_routing_are_those_of_the_inner_classifier():
    for inner in (GaussianNB(), LogisticRegression(), None):
        own = get_tags(LogisticRegression() if inner is None else inner).input_tags
        shown = get_tags(ConfideClassifier(inner)).input_tags
        assert (shown.sparse, shown.pairwise, shown.allow_nan) == (own.sparse, own.pairwise, own.allow_nan)
        router = ConfideClassifier(inner).get_metadata_routing()
        expected = LogisticRegression if inner is None else type(inner)
        owner = router._route_mappings["estimator"].router.owner  # its name before scikit-learn 1.8
        assert owner == expected.__name__ or type(owner) is expected


def test_classes_that_a_fold_has_not_seen_have_no_probability():
    three = np.r_[SIDES[:39], 2]
    seen = LogisticRegression().fit(SMALL, SIDES)
    probs = outputs_of(seen, SMALL, np.array([0, 1, 2])).probabilities().numpy()
    np.testing.assert_allclose(probs[:, :2], seen.predict_proba(SMALL), atol=1e-9)
    assert (probs[:, 2] < 1e-9).all()
    svc = LinearSVC().fit(SMALL, np.arange(40) % 3)
    assert outputs_of(svc, SMALL, np.arange(3)).logits.shape == (40, 3)
    with pytest.raises(InputError, match="a score for each of 4 classes, got 3"):
        outputs_of(svc, SMALL, np.arange(4))
    assert not outputs_of(LinearSVC().fit(SMALL, SIDES), SMALL, np.arange(2)).from_probabilities
    # One sample of a class: the holdout is drawn without strata.
    assert SetClassifier(holdout=0.25, random_state=1).fit(SMALL, three).predict_set(SMALL).shape == (40, 3)


def test_a_holdout_is_a_share_between_none_and_all():
    for share in (0.0, 1.0, -0.1, 1.5):
        with pytest.raises(InputError, match="holdout must lie in"):
            SetClassifier(holdout=share).fit(SMALL, SIDES)
    pairs = np.r_[np.zeros(38, int), 1, 1]  # two of a class can be cut in two parts
    held = [SetClassifier(holdout=0.5, random_state=seed).fit(SMALL, pairs).estimator_.classes_ for seed in range(6)]
    assert all(classes.tolist() == [0, 1] for classes in held)


def test_abstaining_in_numbers_is_minus_one_or_what_is_asked_for():
    never = {"estimator": LogisticRegression().fit(SMALL, SIDES), "holdout": "prefit", "risk": 1e-6}
    assert SelectiveClassifier(**never).fit(SMALL, SIDES).predict(SMALL).tolist() == [-1] * 40
    assert SelectiveClassifier(**never, abstain=7).fit(SMALL, SIDES).predict(SMALL).tolist() == [7] * 40
    assert not SelectiveClassifier(**never).fit(SMALL, SIDES).accept(SMALL).any()


def test_labels_of_a_transformer_are_columns_or_one_value_a_column():
    probs = np.random.default_rng(0).dirichlet(np.ones(3), 30)
    for labels, classes in (
        (np.arange(30) % 3, [0, 1, 2]),
        (np.arange(30) % 2, [0, 1, 2]),  # column numbers, a class is missing
        (np.arange(30) % 2 + 1, [0, 1, 2]),
        (np.arange(30) % 3 + 1, [1, 2, 3]),  # values, one a column
        (np.arange(30) % 3 - 1, [-1, 0, 1]),
    ):
        fitted = CalibratorTransformer().fit(probs, labels)
        assert fitted.classes_.tolist() == classes
        assert fitted.n_features_in_ == 3
        assert set(fitted.predict(probs)) <= set(classes)
        assert fitted.predict(probs).tolist() == [classes[k] for k in fitted.transform(probs).argmax(axis=1)]
        expected = Predictions.from_probs(probs, np.searchsorted(classes, labels))
        assert fitted.calibrator_.temperature == pytest.approx(calibrators.fit("temperature", expected).temperature)
    with pytest.raises(InputError, match="take 3 values, one per column, got 2 values"):
        CalibratorTransformer().fit(probs, np.arange(30) % 2 + 2)


def test_labels_of_a_fitted_classifier_are_found_among_its_classes():
    words = np.array(["b", "d"])[SIDES]
    inner = LogisticRegression().fit(SMALL, words)
    fitted = ConfideClassifier(inner, "beta", cv="prefit", options={"form": "am"}).fit(SMALL, words)
    held = Predictions.from_probs(inner.predict_proba(SMALL), SIDES)
    expected = calibrators.fit("beta", held, form="am")(held).probabilities()
    np.testing.assert_allclose(fitted.predict_proba(SMALL), expected.numpy(), atol=1e-9)
    for stranger in ("a", "c", "e"):
        with pytest.raises(InputError, match=f"got '{stranger}'"):
            ConfideClassifier(inner, cv="prefit").fit(SMALL[:3], ["b", stranger, "d"])


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
