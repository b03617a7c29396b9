"""A service with a promised risk, and a monthly watch.

At most 5 % of the answered requests may be wrong. The threshold is chosen so that this holds with 95 % confidence;
afterwards a watch looks at every month and raises an alarm when the promise breaks, falsely at most once in twenty
services, for ever.
"""

# %% A classifier, calibrated elsewhere; from month 4 on the world is harder than its confidence says.
import numpy as np

import confide

rng = np.random.default_rng(3)


def month(number: int, n: int = 1500, drift: float = 1.0) -> confide.Predictions:
    logits = 5.0 * rng.normal(size=(n, 4))
    probs = np.exp(drift * logits) / np.exp(drift * logits).sum(axis=1, keepdims=True)
    labels = np.array([rng.choice(4, p=p) for p in probs])
    return confide.Predictions(logits, labels, ids=[f"m{number}-{k}" for k in range(n)])


reference = month(0)
point = confide.operating_point(reference, risk=0.05)
print(f"answer from a confidence of {point.threshold:.3f}: {100 * point.coverage:.0f} % of requests")
print(f"at most {100 * point.risk:.0f} % of them wrong, with 95 % confidence")

# %% The watch is one file that is only ever added to.
watch = confide.monitor.Monitor(reference, risk=0.05, point=point, file="watch.jsonl")
for number in range(1, 7):
    batch = month(number, drift=1.0 if number < 4 else 0.3)
    unlabelled = confide.Predictions(batch.logits, ids=batch.ids)
    report = watch.update(unlabelled, name=f"month {number}")
    checked = rng.choice(len(batch), 300, replace=False)  # a random draw is labelled by people
    alarms = watch.labels(batch.ids[checked], batch.labels[checked])
    accuracy = float(batch.facts.correct.double().mean())
    print(f"month {number}: accuracy {100 * report.estimate.value:.0f} % by estimate, {100 * accuracy:.0f} % in truth")
    print(*(f"    {alarm}" for alarm in alarms), sep="\n")

# %% A page with time lines.
confide.monitor.write_page(watch, "watch.html")
