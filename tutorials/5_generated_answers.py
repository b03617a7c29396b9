"""Answers of a language model.

The model says how sure it is, in words. How much too sure is it, can that be mended, and which answers may go out
without a person reading them?
"""

# %% Made up, so that the truth is known: three answers to every question, 15 points too sure.
import numpy as np

import confide


def month(questions: int, seed: int) -> confide.Predictions:
    rng = np.random.default_rng(seed)
    ability = rng.beta(5, 2, questions).repeat(3)
    right = rng.random(3 * questions) < ability
    texts = [f"Confidence: {100 * c:.0f} %" for c in np.clip(ability + 0.15, 0.02, 0.99)]
    ids = [f"{seed}-{k}" for k in range(3 * questions)]
    return confide.answers.verbalised(texts, right, ids=ids, questions=np.arange(questions).repeat(3))


march, april = month(600, 1), month(600, 2)
evaluation = confide.evaluate(april)  # intervals count questions, not answers
print("as stated: ", evaluation.find("confidence_gap"))

# %% Platt's line, fitted in March, on April's answers.
calibrator = confide.calibrators.fit("platt", march)
mended = confide.evaluate(calibrator(april))
print("after Platt:", mended.find("confidence_gap"))

# %% Answers that may go out: at most 22 % wrong, with 95 % confidence.
first = calibrator(march).take(np.arange(0, len(march), 3))  # one answer a question: a promise counts single draws
point = confide.operating_point(first, risk=0.22)
accepted = confide.apply_operating_point(point, calibrator(april))
wrong = 1 - float(april.facts.correct[accepted].double().mean())
print(f"{100 * float(accepted.double().mean()):.0f} % of the answers go out, {100 * wrong:.1f} % of them wrong")
