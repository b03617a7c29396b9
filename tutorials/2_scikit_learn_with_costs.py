"""scikit-learn with costs.

A random forest decides whom to call. A missed case costs twenty times a needless call, and a person may be asked
about some. Calibrated probabilities turn that into a rule, and the rule says what it will cost.
"""

# %% Data and a classifier of scikit-learn, with any calibrator of confide fitted on out-of-fold outputs.
from sklearn.datasets import make_classification
from sklearn.ensemble import RandomForestClassifier
from sklearn.model_selection import train_test_split

import confide
from confide.integrations.sklearn import ConfideClassifier

X, y = make_classification(4000, n_features=12, n_informative=5, weights=[0.8], flip_y=0.08, random_state=0)
X_train, X_test, y_train, y_test = train_test_split(X, y, test_size=0.5, random_state=0)
forest = RandomForestClassifier(60, min_samples_leaf=3, random_state=0)
model = ConfideClassifier(forest, calibrator="beta", cv=3).fit(X_train, y_train)
test = confide.Predictions.from_probs(model.predict_proba(X_test), y_test)
print(f"calibration error {100 * float(confide.metrics.ece(test)):.1f} %")

# %% Costs: a miss 20, a false alarm 1.
costs = {"miss": 20, "false_alarm": 1}
print(f"call from a probability of {confide.decisions.decide(test, costs).result.threshold:.3f}, not 0.5")

# %% A person may be asked, at a cost of 0.5, about 100 samples at most: those where it saves most.
decided = confide.decisions.decide(test, costs, abstain=0.5, capacity=100)
print(f"{int(decided.deferred.sum())} of {len(test)} go to a person")
print("expected cost a sample:", decided.expected_cost)
print("measured with labels:  ", decided.measured_cost)

# %% The rule is a file; tomorrow's samples need no labels.
decided.rule.save("rule.json")
tomorrow = confide.Predictions.from_probs(model.predict_proba(X_test[:5]))
print(confide.decisions.load("rule.json")(tomorrow).actions.tolist())
