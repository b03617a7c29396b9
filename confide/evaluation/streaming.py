"""Predictions that do not fit into memory: shards are read one by one, and only the facts of each are kept.

What stays is a few numbers per sample and the class-wise sums, so every metric of the facts is exact; only metrics
that need all probabilities at once cannot be had from a stream.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch

from confide.block_sizes import SHARD_ROWS
from confide.checks import InputError
from confide.facts import SELDOM, ClassTable, FactsBuilder
from confide.files import formats
from confide.predictions import Predictions, predictions_from_columns
from confide.progress import Progress

SHARD_ENDINGS = (*formats.TABLE_ENDINGS, ".csv.gz")


def as_predictions(
    source: Any,
    *,
    columns: Iterable[str] = (),
    ids: bool = False,
    split: str | None = None,
    score: Any = None,
    weights: Any = None,
) -> Predictions:
    """Predictions of a record, a file, a folder of shards, or an iterator of records or (logits, labels).

    Args:
        columns: user columns to keep from a stream, for groups.
        ids: keep the ids of a stream, for joining difficulty.
        split: overrides the split that files name.
        score: scores that will be asked for; of `margin`, `max_logit` and `energy` a stream keeps only these.
        weights: of the samples, or the name of a column; samples of weight 0 are left out of a stream.
    """
    if not (weights is None or isinstance(weights, str) or isinstance(source, Predictions)):
        raise InputError("weights of files must be the name of a column; load the file for weights given as values")
    several = score if isinstance(score, (list, tuple, dict)) else (score,)
    scores = tuple(s for s in several if isinstance(s, str))
    if isinstance(source, Predictions):
        return source.weighted(weights)
    if isinstance(source, (str, Path)):
        path = Path(source)
        if not path.is_dir():
            return Predictions.load(path, split).weighted(weights)
        return stream((shard.weighted(weights) for shard in from_folder(path, split)), columns, ids, scores)
    if not isinstance(source, Iterable) or isinstance(source, (dict, np.ndarray, torch.Tensor)):
        raise InputError(
            f"evaluate needs Predictions, a path, or an iterator of Predictions, got {type(source).__name__}; "
            "make Predictions(logits, labels)"
        )
    return stream((shard_predictions(shard).weighted(weights) for shard in source), columns, ids, scores)


def shard_predictions(shard: Any) -> Predictions:
    """A shard of an iterator as a record."""
    if isinstance(shard, Predictions):
        return shard
    if isinstance(shard, (tuple, list)) and len(shard) == 2:
        return Predictions(shard[0], shard[1])
    raise InputError(f"a shard must be Predictions or (logits, labels), got {type(shard).__name__}")


def shard_paths(folder: Path) -> list[Path]:
    """All table files of a folder, in the order of their names."""
    if not folder.is_dir():
        raise InputError(f"{folder} must be a folder of files of predictions, got none; check the path")
    paths = sorted(p for p in folder.iterdir() if p.name.endswith(SHARD_ENDINGS) and not p.name.startswith("."))
    if not paths:
        raise InputError(f"{folder} must hold .parquet, .npz or .csv files of predictions, got none; check the path")
    return paths


def from_folder(folder: Path, split: str | None) -> Iterator[Predictions]:
    """Records of all table files of a folder, in the order of their names, large ones in parts."""
    paths = shard_paths(folder)
    with Progress("read shards", len(paths)) as progress:
        for path in paths:
            for columns, metadata in formats.table_batches(path, SHARD_ROWS):
                yield predictions_from_columns(columns, metadata, split, str(path))
            progress.step(1, path.name)


def stream(
    shards: Iterable[Predictions], columns: Iterable[str] = (), ids: bool = False, scores: Iterable[str] = ()
) -> Predictions:
    """One record that keeps the facts of all shards and none of their logits."""
    streamed = StreamedPredictions(tuple(columns), ids, tuple(scores))
    for shard in shards:
        if len(shard) and len(counted := shard.counted()):
            streamed.add(counted)
    return streamed.record()


class StreamedPredictions:
    """Facts, labels, class-wise sums and chosen columns of the shards so far."""

    def __init__(self, columns: tuple[str, ...], ids: bool, scores: tuple[str, ...]) -> None:
        self.columns, self.keep_ids = columns, ids
        # What can be told from the rest or was not asked for: ten million samples must fit into two gigabytes.
        self.dropped = {"p_true": None} | {name: None for name in SELDOM if name not in scores}
        self.facts, self.count = FactsBuilder(), 0
        self.labels: list[torch.Tensor] = []
        self.others: dict[str, list[Any]] = {name: [] for name in (*columns, "trust", "ids", "weights")}
        self.table: ClassTable | None = None
        self.starts: set[str] = set()  # first id of each shard
        self.first: Predictions | None = None

    def add(self, shard: Predictions) -> None:
        """Keep what is needed of a shard."""
        if self.first is not None and (
            shard.num_classes != self.first.num_classes and shard.outputs.num_classes is not None
        ):
            raise InputError(
                f"all shards must have {self.first.num_classes} classes, got {shard.num_classes} in shard "
                f"{self.count}; check that file"
            )
        if self.first is not None and shard.class_names != self.first.class_names:
            raise InputError(
                f"all shards must name the same classes in one order, got {shard.class_names} in shard {self.count} "
                f"after {self.first.class_names}; give class indices"
            )
        if self.first is None and shard.unit is not None and shard.unit not in self.columns:
            self.columns = (*self.columns, shard.unit)
            self.others[shard.unit] = []
        self._check_apart(shard)
        if shard.outputs.all_classes:
            table = shard.class_table()
            if shard.weights is not None:
                table = table.scaled(float(shard.weights.mean()))
            self.table = table if self.table is None else self.table + table
        facts = shard.core_facts if all(name in self.dropped for name in SELDOM) else shard.facts
        predicted = facts.prediction.to(torch.int32)
        self.facts.add(replace(facts, predicted=predicted, **self.dropped))  # type: ignore[arg-type]
        self.count += 1
        self.labels.append(shard.labels.cpu())
        for name in self.columns:
            if name in shard.columns:
                self.others[name].append(shard.columns[name])
        if shard.trust is not None:
            self.others["trust"].append(shard.trust)
        if shard.weights is not None:
            self.others["weights"].append(shard.weights)
        if self.keep_ids:
            self.others["ids"].append(shard.ids)
        if self.first is None:
            self.first = shard.take(np.arange(min(1, len(shard))))

    def _check_apart(self, shard: Predictions) -> None:
        """A folder may hold predictions of several splits or models: these are no shards of one set."""
        if self.first is not None and shard.split != self.first.split:
            raise InputError(
                f"all shards must be of one split, got '{shard.split}' in shard {self.count} after "
                f"'{self.first.split}'; name one file, or what they are together with --split"
            )
        # Ids that are words name a sample; those that are numbers may count rows of a shard.
        if shard.ids.dtype.kind == "U" and str(shard.ids[0]) in self.starts:
            raise InputError(
                f"shards must hold different samples, got '{shard.ids[0]}' again in shard {self.count}; "
                "is that another model? name one file"
            )
        self.starts.add(str(shard.ids[0]))

    def record(self) -> Predictions:
        """All shards as one record of facts."""
        if self.first is None:
            raise InputError("a stream of predictions must hold at least one sample, got none; check the shards")
        labels = torch.cat(self.labels)
        facts = self.facts.join()
        complete = {k: v for k, v in self.others.items() if sum(map(len, v)) == len(labels)}
        weights, table = None, self.table
        if self.others["weights"]:
            if "weights" not in complete:
                raise InputError("all shards must have weights, or none; add a column 'weight' to the others")
            weights = np.concatenate(complete["weights"])
            table = None if table is None else table.scaled(1 / float(weights.mean()))
        classes = self.first.num_classes
        if self.first.outputs.num_classes is None:
            classes = int(max(labels.max(), facts.prediction.max())) + 1
        return Predictions.from_facts(
            facts,
            labels,
            classes,
            table,
            ids=np.concatenate(complete["ids"]) if complete.get("ids") else None,
            split=self.first.split,
            trust=torch.cat(complete["trust"]) if complete.get("trust") else None,
            columns={k: np.concatenate(complete[k]) for k in self.columns if k in complete},
            class_names=self.first.class_names,
            weights=weights,
            from_probabilities=self.first.from_probabilities,
            unit=self.first.unit if self.first.unit in complete else None,
        )
