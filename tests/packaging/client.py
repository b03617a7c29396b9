"""A user's program, type-checked against the installed wheel: what `py.typed` promises."""

import numpy as np

import confide

logits = np.array([[2.0, 0.0], [0.0, 1.0], [1.5, 0.2]])
predictions: confide.Predictions = confide.Predictions(logits, [0, 1, 1])
evaluation: confide.Evaluation = confide.evaluate(predictions, intervals=False)
ece: float = evaluation.value("ece")
calibrator = confide.calibrators.fit("temperature", predictions)
calibrated: confide.Predictions = calibrator(predictions)
