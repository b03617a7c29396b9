"""Ensembles: members that differ in their seed, and what they say together."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

import torch

from confide.core.door import InputError, check_range
from confide.core.predictions import SMALLEST_PROBABILITY, Predictions
from confide.core.records import Dataset, Scores, Split
from confide.training.loop import Recorder, fit
from confide.training.predict import predict
from confide.training.settings import Settings
from confide.training.stacked import begins_as_stack, fit_stacked, reason_against_stacking, small_on_gpu
from confide.training.trained import Trained


def fit_members(
    dataset: Dataset,
    settings: Settings | None = None,
    *,
    members: int = 3,
    scores: Scores | None = None,
    folder: str | Path | None = None,
    recorder: Recorder | None = None,
    stack: bool | None = None,
    on_epoch: Callable[[int, dict[str, float]], None] | None = None,
    checkpoint_seconds: float = 30.0,
    if_other: str = "refuse",
) -> tuple[Trained, ...]:
    """Train members with seeds seed, seed + 1, ...: one after another, or all at once as one stacked model.

    Args:
        members: how many.
        folder: each member has a folder `member-<number>` in it.
        recorder: gets every member's predictions after each epoch.
        stack: train all at once; by default where a GPU is there and the model is small. Stacked members are drawn
            as single ones are, but their rounding differs, and an interrupted stack starts again.
        on_epoch: gets a member's number and the log's row after each of its epochs.
        checkpoint_seconds: least time between checkpoints of single members.
        if_other: what to do with folders that hold a training of other settings or data: refuse, or restart.
    """
    check_range(members, "members", 1)
    settings = settings or Settings()
    homes = [None if folder is None else Path(folder) / f"member-{number}" for number in range(members)]
    reason = reason_against_stacking(dataset, settings)
    if stack and reason is not None:
        raise InputError(f"members cannot be stacked: {reason}; leave out stack=True")
    wanted = small_on_gpu(dataset, settings) if stack is None and reason is None else bool(stack)
    if wanted and members > 1 and begins_as_stack(homes):
        trained = _stacked(dataset, settings, members, scores, homes, recorder, on_epoch, if_other)
        if trained is not None:
            return trained
        if stack:
            raise InputError("members cannot be stacked: together they do not fit into memory; leave out stack=True")
    return tuple(
        fit(
            dataset,
            settings.changed(seed=settings.seed + number),
            scores=scores,
            folder=home,
            recorder=recorder,
            member=number,
            on_epoch=None if on_epoch is None else partial(on_epoch, number),
            checkpoint_seconds=checkpoint_seconds,
            if_other=if_other,
        )
        for number, home in enumerate(homes)
    )


def _stacked(*given: Any) -> tuple[Trained, ...] | None:
    """Members as one stack, or None where they do not fit into memory together."""
    with suppress(torch.OutOfMemoryError):
        return fit_stacked(*given)
    torch.cuda.empty_cache()
    return None


def member_folders(folder: str | Path) -> list[Path]:
    """The members' folders in the folder of an ensemble, in order; empty where it is none."""
    found = [path for path in Path(folder).glob("member-*") if (path / "model.safetensors").exists()]
    return sorted(found, key=lambda path: int(path.name.rpartition("-")[2]))


def predict_members(
    members: Sequence[Trained | str | Path] | str | Path,
    dataset: Dataset | Split,
    split: str = "test",
    **options: object,
) -> Predictions:
    """What the members say together: the logarithm of their mean probability.

    Columns hold `ensemble_entropy` (of the mean), `ensemble_mutual_information` and `ensemble_disagreement` (share of
    members whose class is not that of the mean).
    """
    chosen: Sequence[Trained | str | Path] = member_folders(members) if isinstance(members, (str, Path)) else members
    if not chosen:
        raise InputError(f"an ensemble needs at least one member, got none in {members}")
    said = [predict(member, dataset, split, **options) for member in chosen]  # type: ignore[arg-type]
    probs = torch.stack([torch.softmax(p.logits.double(), dim=1) for p in said])
    mean = probs.mean(dim=0)
    entropy = torch.special.entr(mean).sum(dim=1)
    own = torch.special.entr(probs).sum(dim=2).mean(dim=0)
    other = (probs.argmax(dim=2) != mean.argmax(dim=1)).double().mean(dim=0)
    # What the first member's passes of dropout said is not what the ensemble says.
    columns = {
        **{name: values for name, values in said[0].columns.items() if not name.startswith("mc_")},
        "ensemble_entropy": entropy.numpy(),
        "ensemble_mutual_information": (entropy - own).clamp_min(0).numpy(),
        "ensemble_disagreement": other.numpy(),
    }
    return Predictions(
        mean.clamp_min(SMALLEST_PROBABILITY).log().float(),
        said[0].labels,
        ids=said[0].ids,
        split=split,
        columns=columns,
        class_names=said[0].class_names,
        from_probabilities=True,
    )
