"""Oracles with a network of their own: a new head on a frozen backbone, or a fine-tuned copy of a backbone; and
out-of-fold predictions to learn from.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field, replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from confide import random
from confide.checks import InputError, check_choice, check_options, check_range, check_record
from confide.files import formats
from confide.files.fitted import FittedState, load_fitted, save_fitted
from confide.losses.reweighting import class_balance_weights
from confide.models.base import feature_width
from confide.models.device import Device
from confide.models.preparation import Feed, Preparation, rows_in_batches
from confide.models.trained import build_model
from confide.predictions import Predictions
from confide.progress import Progress
from confide.records import Dataset, Split, rows_of
from confide.training.batch_norm import exact_batch_norms
from confide.training.checkpoint import Trained
from confide.training.loop import add_row, fit
from confide.training.prediction import logits_of, predict
from confide.training.settings import AUGMENTS, Settings
from confide.trust.losses import TRUST_LOSSES, create
from confide.trust.oracles import HEADS, apply_head
from confide.types import Options

# The network of an oracle: a copy of a backbone, hidden layers and a head; its settings, and its files.

BALANCED = "class_balanced"


@dataclass(frozen=True)
class OracleSettings:
    """How an oracle is trained.

    Args:
        loss: a trust loss, `loss_options` are its options; or `class_balanced`, cross-entropy weighted by the effective
            numbers of right and wrong, with the option `beta`.
        target: what `tcp` learns: the true class's `probability`, or its `ratio` to the largest one.
        head: signed_distance or linear; by default the first for steep_slope and the second for all others.
        depth: train a new `head` on a frozen backbone, or the whole `network`.
        hidden: widths of hidden layers between backbone and head (ConfidNet has four of 400).
        batch_norm: `frozen` keeps statistics and scales of the backbone's batch norms; `trained` lets both move.
        augment: crops and flips of the fitting samples; the classifier errs more on them, so there is more to learn.
        learning_rate: largest value of a one-cycle schedule; the backbone gets `backbone_rate` times of it.
    """

    loss: str = "steep_slope"
    loss_options: Options = field(default_factory=dict)
    head: str = ""
    depth: str = "network"
    hidden: tuple[int, ...] = ()
    batch_norm: str = "frozen"
    augment: str = "none"
    epochs: int = 10
    batch_size: int = 128
    learning_rate: float = 1e-3
    backbone_rate: float = 0.1
    weight_decay: float = 1e-2
    seed: int = 0
    device: str = "auto"
    precision: str = "auto"
    target: str = "probability"

    def __post_init__(self) -> None:
        if self.loss == BALANCED:
            check_options(BALANCED, "trust loss", self.loss_options, ("beta",))
            check_range(self.beta, "beta", 0, 1, high_open=True)
        else:
            TRUST_LOSSES.get(self.loss).check_options(self.loss_options)
        check_choice(self.target, ("probability", "ratio"), "target")
        check_choice(self.depth, ("head", "network"), "depth")
        check_choice(self.batch_norm, ("frozen", "trained"), "batch_norm")
        check_choice(self.augment, AUGMENTS, "augment")
        check_choice(self.head or "linear", HEADS, "head")
        check_range(self.epochs, "epochs", 1)
        check_range(self.batch_size, "batch_size", 1)
        check_range(self.learning_rate, "learning_rate", 0, low_open=True)
        check_range(self.backbone_rate, "backbone_rate", 0)

    @property
    def loss_word(self) -> str:
        """The trust loss that is computed."""
        return "binary_cross_entropy" if self.loss == BALANCED else self.loss

    @property
    def beta(self) -> float:
        """Of the class-balanced loss."""
        return float(self.loss_options.get("beta", 0.999))

    @property
    def head_word(self) -> str:
        """The head, by the loss where none was named."""
        return self.head or ("signed_distance" if self.loss == "steep_slope" else "linear")


class OracleNetwork(nn.Module):
    """z of the inputs: body, hidden layers, head."""

    def __init__(self, body: nn.Module, dim: int, settings: OracleSettings) -> None:
        super().__init__()
        self.body, self.head_word = body, settings.head_word
        widths = (dim, *settings.hidden)
        layers = [layer for a, b in pairwise(widths) for layer in (nn.Linear(a, b), nn.ReLU(inplace=True))]
        self.hidden = nn.Sequential(*layers)
        self.weight = nn.Parameter(torch.randn(widths[-1]) * widths[-1] ** -0.5)
        self.bias = nn.Parameter(torch.zeros(()))

    def forward(self, inputs: Tensor) -> Tensor:
        hidden = self.hidden(self.body(inputs).flatten(1))
        # Under autocast the product would give z eight bits: a thousand values for ten thousand samples.
        with torch.autocast(hidden.device.type, enabled=False):
            return apply_head(self.head_word, hidden.float(), self.weight, self.bias)


@dataclass(frozen=True)
class OracleFit:
    """What an oracle was fitted on: the width of its body, the model that it judges, and that model's errors."""

    num_classes: int
    dim: int
    classifier: str
    split: str
    n: int
    errors: int


@dataclass(frozen=True, eq=False)
class Oracle:
    """A trained oracle with what is needed to use it; trust a prediction iff z > 0. `log` has a row per epoch."""

    network: OracleNetwork
    settings: OracleSettings
    backbone: Settings
    preparation: Preparation
    about: OracleFit
    log: Mapping[str, tuple[float, ...]] = field(default_factory=dict)

    def __call__(self, dataset: Dataset | Split, split: str = "test", *, batch_size: int = 1000) -> Tensor:
        """z of every sample of a split, high = safe."""
        samples = dataset.split(split) if isinstance(dataset, Dataset) else dataset
        self.preparation.check(samples, f"split '{split}'")
        where = Device.of(self.settings.device, self.settings.precision)
        feed = Feed(samples, self.preparation, where.device)
        trust = logits_of(where.place(self.network).eval(), feed, where, batch_size).cpu()
        self.network.to("cpu")
        return trust

    def add_to(self, predictions: Predictions, dataset: Dataset | Split, split: str = "test") -> Predictions:
        """The predictions with their column `trust`, matched by id."""
        samples = dataset.split(split) if isinstance(dataset, Dataset) else dataset
        rows = rows_of(predictions.ids, samples.ids, "the oracle's samples")
        return predictions.replace(trust=self(dataset, split)[torch.from_numpy(rows)])

    def save(self, folder: str | Path) -> None:
        """Write oracle.safetensors and, last, oracle.json."""
        record = {
            "settings": asdict(self.settings),
            "backbone": self.backbone.as_dict(),
            "preparation": self.preparation.as_dict(),
            "about": asdict(self.about),
            "log": dict(self.log),
        }
        save_fitted(Path(folder) / "oracle.json", formats.ORACLE, FittedState(record, self.network.state_dict()))

    @classmethod
    def load(cls, folder: str | Path) -> Oracle:
        """Read what `save` wrote."""
        return load_fitted(Path(folder) / "oracle.json", formats.ORACLE, cls._restored)

    @classmethod
    def _restored(cls, state: FittedState) -> Oracle:
        record = state.record
        settings = OracleSettings(**{**record["settings"], "hidden": tuple(record["settings"]["hidden"])})
        backbone, preparation = Settings.from_dict(record["backbone"]), Preparation.from_dict(record["preparation"])
        about, options = check_record(OracleFit(**record["about"])), backbone.model_options
        whole = build_model(backbone.model, options, preparation, about.num_classes, load_pretrained=False)
        network = OracleNetwork(whole.body, about.dim, settings)
        network.load_state_dict(state.tensors)
        log = {name: tuple(values) for name, values in record["log"].items()}
        return cls(network.eval(), settings, backbone, preparation, about, log)


# Training an oracle.
#
# The classifier is frozen and in eval mode; it says which predictions are right. The oracle looks at the same inputs
# (the same crops and flips) through a copy of a backbone, of the classifier or of any other trained model.


def fit_oracle(
    classifier: Trained,
    dataset: Dataset | Split,
    split: str = "val",
    *,
    backbone: Trained | None = None,
    targets: Predictions | None = None,
    settings: OracleSettings | None = None,
    **changes: Any,
) -> Oracle:
    """Train an oracle for a frozen classifier on a split it was not trained on.

    Args:
        classifier: whose predictions are to be trusted or not.
        dataset: a dataset that has the split, or a split of its own, then called `split`.
        split: which samples to learn from.
        backbone: model whose body the oracle copies; by default the classifier's own.
        targets: predictions of a classifier on these samples, matched by id, instead of this one's: out-of-fold
            predictions let the oracle learn on the training split.
        settings: of the oracle's training; without them the default ones.
        changes: fields of `OracleSettings`.

    Returns:
        The oracle: called with samples it gives z, trust a prediction iff z > 0.

    Raises:
        InputError: the split is the test split, of other classes, or all predictions on it are right (or wrong).

    Example:
        >>> import numpy as np
        >>> dataset = confide.load_dataset((np.eye(20), np.arange(20) % 2))
        >>> settings = confide.training.Settings(model="mlp", epochs=1, batch_size=8, device="cpu")
        >>> trained = confide.training.fit(dataset, settings)
        >>> oracle = confide.training.fit_oracle(trained, dataset.train, "train", epochs=1, depth="head", device="cpu")
        >>> oracle(dataset.train, "train").shape
        torch.Size([16])
    """
    settings = replace(settings or OracleSettings(), **changes)
    if split == "test":
        raise InputError("an oracle must not be fitted on the test split; pass the split 'val'")
    if targets is not None:
        targets.need_not_test("an oracle")
    samples = dataset.split(split) if isinstance(dataset, Dataset) else dataset
    source = backbone or classifier
    for trained in (classifier, source):
        trained.preparation.check(samples, f"split '{split}'")
    _check_classes(samples, classifier, split)
    where = Device.of(settings.device, settings.precision)
    with where.seeded(settings.seed, deterministic=False):
        body = copy.deepcopy(source.model.body)
        dim = feature_width(body, source.preparation.blank(1).to(next(body.parameters()).device))
        network = OracleNetwork(body, dim, settings)
        data = _OracleData(classifier, source, samples, targets, settings, where)
        log = _train(where.place(network), data, settings, where)  # type: ignore[arg-type]
    network.to("cpu").eval()
    about = OracleFit(source.num_classes, dim, classifier.settings.model, split, len(samples), data.errors)
    return Oracle(network, settings, source.settings, source.preparation, about, log)


def _check_classes(samples: Split, classifier: Trained, split: str) -> None:
    highest = int(samples.labels.max()) if len(samples) else 0
    if highest >= classifier.num_classes:
        raise InputError(
            f"an oracle needs samples of the classifier's {classifier.num_classes} classes, got label {highest} in "
            f"split '{split}'; pass the data that the classifier was trained for"
        )


class _OracleData:
    """Batches of (inputs of the oracle, target): correctness or p_true, of the same augmented inputs."""

    def __init__(
        self,
        classifier: Trained,
        source: Trained,
        samples: Split,
        targets: Predictions | None,
        settings: OracleSettings,
        where: Device,
    ) -> None:
        how = {"augment": settings.augment, "seed": settings.seed}
        self.feed = Feed(samples, source.preparation, where.device, **how)  # type: ignore[arg-type]
        same = source.preparation == classifier.preparation
        # Both feeds draw crop and flip by seed, epoch and id: the two networks see the same pixels.
        self.classifier_feed = self.feed if same else Feed(samples, classifier.preparation, where.device, **how)  # type: ignore[arg-type]
        self.classifier = where.place(copy.deepcopy(classifier.model)).eval().requires_grad_(False)
        self.learns_correct = TRUST_LOSSES.get(settings.loss_word).spec.target == "correct"
        self.where, self.settings, self.fixed = where, settings, None
        if targets is not None:
            facts = targets.align(samples.ids).facts
            target = facts.correct if self.learns_correct else facts.need("p_true")
            if not self.learns_correct and settings.target == "ratio":
                target = target / facts.confidence
            self.fixed, self.right = target.to(where.device, torch.float32), facts.correct.to(where.device)
            self.errors = int((~facts.correct).sum())
        else:
            self.errors = self._count_errors()
        if not 0 < self.errors < len(samples):
            raise InputError(
                f"an oracle needs right and wrong predictions to learn from, got "
                f"{len(samples) - self.errors} right and {self.errors} wrong; "
                "fit it on held-out samples, or pass out-of-fold predictions as targets"
            )

    def _count_errors(self) -> int:
        feed = self.classifier_feed
        feed.start_epoch(0)
        batches = feed.batches(rows_in_batches(len(feed), 1000))
        return sum(int((self._classify(x).argmax(dim=1) != feed.labels[at]).sum()) for x, at in batches)

    @torch.no_grad()
    def _classify(self, inputs: Tensor) -> Tensor:
        with self.where.autocast():
            logits: Tensor = self.classifier(inputs).float()
        return logits

    def target(self, inputs: Tensor, rows: Tensor) -> tuple[Tensor, Tensor]:
        """What the loss compares z with, n, float, and which predictions are right."""
        if self.fixed is not None:
            return self.fixed[rows], self.right[rows]
        logits, labels = self._classify(inputs), self.feed.labels[rows]
        right = logits.argmax(dim=1) == labels
        if self.learns_correct:
            return right.float(), right
        probs = torch.softmax(logits, dim=1)
        p_true = probs.gather(1, labels[:, None]).squeeze(1)
        return p_true / probs.amax(dim=1) if self.settings.target == "ratio" else p_true, right

    def epoch(self, number: int) -> Iterator[tuple[Tensor, Tensor, Tensor]]:
        """(oracle inputs, classifier inputs, rows) of every batch in a shuffled order of this epoch."""
        order = np.random.default_rng([self.settings.seed, number]).permutation(len(self.feed))
        cuts = range(0, len(order), self.settings.batch_size)
        rows = [order[start : start + self.settings.batch_size].astype(np.int64) for start in cuts]
        self.feed.start_epoch(number)
        if self.classifier_feed is self.feed:
            return ((inputs, inputs, at) for inputs, at in self.feed.batches(rows))
        self.classifier_feed.start_epoch(number)
        both = zip(self.feed.batches(rows), self.classifier_feed.batches(rows), strict=True)
        return ((inputs, seen, at) for (inputs, at), (seen, _) in both)


def _train(
    network: OracleNetwork, data: _OracleData, settings: OracleSettings, where: Device
) -> dict[str, tuple[float, ...]]:
    options = loss_options(settings, len(data.feed) - data.errors, data.errors)
    objective = create(settings.loss_word, reduction="mean", **options)
    groups = _parameter_groups(network, settings)
    optimiser = torch.optim.AdamW(groups, lr=settings.learning_rate, weight_decay=settings.weight_decay)
    steps = settings.epochs * -(-len(data.feed) // settings.batch_size)
    rates = [group["lr"] for group in groups]
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimiser, rates, total_steps=steps + 1, cycle_momentum=False)
    log: dict[str, list[float]] = {}
    with Progress("oracle", steps) as progress:
        for epoch in range(settings.epochs):
            _set_modes(network, settings)
            sums = torch.zeros(5, dtype=torch.float64, device=where.device)
            for inputs, seen, rows in data.epoch(epoch):
                target, right = data.target(seen, rows)
                with where.autocast(), exact_batch_norms(where.device):
                    z = network(inputs)
                loss = objective(z.float(), target)
                optimiser.zero_grad(set_to_none=True)
                torch.autograd.backward(loss)
                optimiser.step()
                schedule.step()
                trusted = z.detach() > 0
                counts = (loss.detach() * len(z), right & trusted, right, ~right & ~trusted, ~right)
                sums += torch.stack([c.double().sum() for c in counts])
                progress.step()
            total, trusted_right, rights, distrusted_wrong, wrongs = sums.tolist()
            true_positives, true_negatives = trusted_right / max(rights, 1), distrusted_wrong / max(wrongs, 1)
            add_row(log, {"loss": total / len(data.feed), "tpr": true_positives, "tnr": true_negatives})
    return {name: tuple(values) for name, values in log.items()}


def loss_options(settings: OracleSettings, right: int, wrong: int) -> Options:
    """The options named, or the weights of right and wrong by their effective numbers."""
    if settings.loss != BALANCED:
        return dict(settings.loss_options)
    negative, positive = class_balance_weights(torch.tensor([wrong, right]), settings.beta).tolist()
    return {"weight_neg": negative, "weight_pos": positive}


def _parameter_groups(network: OracleNetwork, settings: OracleSettings) -> list[Options]:
    top = [*network.hidden.parameters(), network.weight, network.bias]
    groups: list[Options] = [{"params": top, "lr": settings.learning_rate}]
    network.body.requires_grad_(settings.depth == "network")
    if settings.batch_norm == "frozen":
        for module in network.body.modules():
            if isinstance(module, nn.modules.batchnorm._BatchNorm):
                module.requires_grad_(False)
    learned = [p for p in network.body.parameters() if p.requires_grad]
    if learned and settings.backbone_rate > 0:
        groups.append({"params": learned, "lr": settings.learning_rate * settings.backbone_rate})
    return groups


def _set_modes(network: OracleNetwork, settings: OracleSettings) -> None:
    """A frozen backbone is in eval mode; a trained one too but for batch norms that may move: no dropout in it."""
    network.train()
    network.body.eval()
    if settings.depth == "network" and settings.batch_norm == "trained":
        for module in network.body.modules():
            if isinstance(module, nn.modules.batchnorm._BatchNorm):
                module.train()


def cross_fit(dataset: Dataset, settings: Settings, *, folds: int = 5, split: str = "train") -> Predictions:
    """Out-of-fold predictions of the training split: K classifiers, each trained without the fold it predicts.

    Args:
        dataset: to train on.
        settings: of every classifier.
        folds: K, drawn within the classes by seed and sample id.
        split: whose samples are predicted.

    Returns:
        Predictions for every sample of the split, in its order.

    Example:
        >>> import numpy as np
        >>> dataset = confide.load_dataset((np.eye(20), np.arange(20) % 2))
        >>> settings = confide.training.Settings(model="mlp", epochs=1, batch_size=8, device="cpu")
        >>> confide.training.cross_fit(dataset, settings, folds=2).logits.shape
        torch.Size([16, 2])
    """
    samples = dataset.split(split)
    labels = np.asarray(samples.labels)
    fold = random.folds(samples.ids, labels, folds, seed=settings.seed, purpose="trust folds")
    logits = torch.empty(len(samples), dataset.num_classes)
    for number in range(folds):
        inside, outside = np.flatnonzero(fold == number), np.flatnonzero(fold != number)
        part = replace(dataset, splits={**dataset.splits, split: samples.take(outside)})
        predictions = predict(fit(part, settings), samples.take(inside), split)
        logits[torch.from_numpy(inside)] = predictions.logits.float()
    return Predictions(logits, torch.as_tensor(samples.labels), samples.ids, split, class_names=dataset.class_names)
