"""From a file of logits to a report.

A network's logits on held-out samples are all that is needed: how far off is its confidence, what does one temperature
mend, and what does the page say about it?
"""

# %% A file as your training loop may have left it: here from an over-confident network that we make up.
import numpy as np

import confide

rng = np.random.default_rng(0)


def write(name: str, n: int) -> None:
    true_logits = 1.5 * rng.normal(size=(n, 5))
    labels = np.array([rng.choice(5, p=np.exp(z) / np.exp(z).sum()) for z in true_logits])
    np.savez(name, logits=2 * true_logits, labels=labels)  # twice as sure as it should be


write("val.npz", 2000)
write("test.npz", 4000)

# %% Evaluate: every number has an interval, and a calibration error the value that chance alone would give.
test = confide.Predictions.load("test.npz")
before = confide.evaluate(test, title="as trained")
print(*(before.find(metric) for metric in ("accuracy", "ece", "nll")), sep="\n")

# %% One temperature, fitted on val, never on test.
val = confide.Predictions.load("val.npz")
calibrator = confide.calibrators.fit("temperature", val)
after = confide.evaluate(calibrator(test), title="calibrated")
print(f"temperature {calibrator.temperature:.2f} (2.00 would be right)")
print(f"ECE {100 * before.value('ece'):.1f} % -> {100 * after.value('ece'):.1f} %")

# %% The page: one HTML file, nothing else.
confide.write_report(after, "report.html")
