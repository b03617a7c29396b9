"""Text with the Hugging Face Trainer.

Any loss of confide is a `compute_loss_func`, our metrics are a `compute_metrics`. Here a model of a few thousand
weights on made-up sentences, so that nothing is downloaded; with your own checkpoint the lines are the same.
"""

# %% A tiny classifier with the outputs that the Trainer expects.
import tempfile

import numpy as np
import torch
import transformers

import confide
from confide.integrations.huggingface import compute_loss_func, compute_metrics

transformers.logging.set_verbosity_error()
torch.manual_seed(0)
rng = np.random.default_rng(0)
labels = rng.integers(0, 3, 900)
words = np.where(rng.random((900, 8)) < 0.35, labels[:, None] * 10, rng.integers(30, 60, (900, 8)))
rows = [{"input_ids": torch.tensor(w), "labels": int(y)} for w, y in zip(words, labels, strict=True)]
config = transformers.BertConfig(
    vocab_size=64, hidden_size=16, num_hidden_layers=1, num_attention_heads=2, intermediate_size=32, num_labels=3
)
model = transformers.BertForSequenceClassification(config)

# %% Train with focal loss; accuracy, NLL, ECE and AURC are logged at every evaluation.
arguments = transformers.TrainingArguments(
    tempfile.mkdtemp(),
    num_train_epochs=3,
    per_device_train_batch_size=50,
    learning_rate=5e-3,
    eval_strategy="epoch",
    save_strategy="no",
    report_to=[],
    disable_tqdm=True,
    use_cpu=True,
)
trainer = transformers.Trainer(
    model,
    arguments,
    train_dataset=rows[:600],
    eval_dataset=rows[600:750],
    compute_loss_func=compute_loss_func("focal", gamma=2.0),
    compute_metrics=compute_metrics(),
)
trainer.train()
logged = trainer.evaluate()
print({name: round(value, 3) for name, value in logged.items() if name.startswith("eval_") and "_per_" not in name})

# %% Its predictions are Predictions: calibrate on val, evaluate on test.
val, test = (
    confide.Predictions(out.predictions, out.label_ids)
    for out in (trainer.predict(part) for part in (rows[600:750], rows[750:]))
)
calibrated = confide.calibrators.fit("temperature", val)(test)
print(f"NLL {float(confide.metrics.nll(test)):.3f} -> {float(confide.metrics.nll(calibrated)):.3f}")
