"""Arguments of every kind to the public functions, the command line and the routes: a value or one line."""

from __future__ import annotations

import argparse
import os
import random
import warnings
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any
from urllib.parse import quote

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, Phase, given, settings, strategies as st

import confide
from confide import answers, calibrators, decisions, difficulty, losses, metrics, monitor, sets, trust
from confide.checks import InputError, MissingExtra, OptionError
from confide.cli.main import VERBS, main
from confide.predictions import Predictions
from confide.records import Features
from tests.hostile.conftest import app as app, ask_all, whole_run as whole_run

REFUSALS = (InputError, OptionError, MissingExtra)
EXAMPLES = int(os.environ.get("FUZZ_EXAMPLES", "60"))
QUICK = settings(
    max_examples=EXAMPLES,
    derandomize=EXAMPLES == 60,  # the same in every test run; new ones in `make fuzz`
    deadline=None,
    database=None,
    phases=(Phase.explicit, Phase.generate),  # what fails once is small enough to read
    suppress_health_check=list(HealthCheck),
)
KINDS = (
    *("float16", "float32", "float64", "longdouble", ">f8", "int8", "int64", "uint64", "bool"),
    *("complex64", "datetime64[s]", "S3", "U3", "object"),
)
NUMBERS = (0.0, 1.0, -1.0, 0.5, 1e-320, 1e30, -1e30, 1e308, float("nan"), float("inf"), -float("inf"))


@st.composite
def arrays(draw: Any, rows: int = 6) -> Any:
    """An array, tensor, list or anything else, of any type, shape and values; often nearly right."""
    n, c = draw(st.sampled_from((0, 1, 2, rows, rows, rows))), draw(st.sampled_from((0, 1, 2, 3, 3, 3)))
    shape = draw(st.sampled_from(((n, c), (n, c), (n, c), (n,), (), (n, c, 2))))
    values = np.array(draw(st.lists(st.sampled_from((*NUMBERS, 0.1, 0.2, 2.0, 3.0)), min_size=24, max_size=24)))
    flat = np.resize(values, int(np.prod(shape, dtype=int)))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        array = np.nan_to_num(flat).astype(draw(st.sampled_from(KINDS))) if draw(st.booleans()) else flat
    array = array.reshape(shape)
    match draw(st.integers(0, 5)):
        case 0:
            return array.tolist()
        case 1 if (
            array.dtype.kind in "fiub" and array.dtype.name not in ("longdouble", "float128") and array.dtype.isnative
        ):
            return torch.from_numpy(array.copy())
        case 2:
            return draw(st.sampled_from((None, 5, "x", {}, [[1], [1, 2]], object(), b"ab", [None, 1.0])))
    return array


LABELS = st.one_of(
    st.just(torch.arange(6) % 3),
    st.lists(st.sampled_from((0, 1, 2, -1, 3, 10**12, 0.5)), min_size=0, max_size=7),
    arrays(),
)


def answered(call: Callable[[], Any]) -> Any:
    """What a call returns; None where it refuses in one line."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            return call()
        except REFUSALS as error:
            refusal = str(error)
    assert "\n" not in refusal.strip()
    return None


@given(arrays(), LABELS, st.sampled_from(("logits", "probs", "log_probs")))
@QUICK
def test_predictions_of_anything(values, labels, kind):
    make = {"probs": Predictions.from_probs, "log_probs": Predictions.from_log_probs}.get(kind, Predictions)
    made = answered(lambda: make(values, labels))
    if made is not None and len(made):
        confidence = answered(lambda: made.facts.confidence)
        assert confidence is None or bool(((confidence >= 0) & (confidence <= 1)).all())


@given(arrays(), LABELS, st.sampled_from(metrics.names()))
@QUICK
def test_metrics_of_anything(values, labels, word):
    answered(lambda: float(getattr(metrics, word)(Predictions(values, labels))))


@given(arrays(), LABELS, st.sampled_from(losses.names()))
@QUICK
def test_losses_of_anything(values, labels, word):
    answered(lambda: losses.create(word)(values, labels))


@given(arrays(), LABELS, st.sampled_from([m.word for m in calibrators.CALIBRATORS if m.spec.wants == "nothing"]))
@QUICK
def test_calibrators_of_anything(values, labels, word):
    made = answered(lambda: Predictions(values, labels, split="val"))
    if made is not None:
        fitted = answered(lambda: calibrators.fit(word, made))
        if fitted is not None:
            answered(lambda: fitted(made))


@given(arrays(), LABELS, st.sampled_from(difficulty.names()))
@QUICK
def test_difficulty_of_anything(values, labels, word):
    answered(lambda: difficulty.score(word, values, labels))


@given(arrays(), LABELS, st.sampled_from(("mcp", "entropy", "margin", "energy", "trust_score", "knn", "rmd")))
@QUICK
def test_trust_of_anything(values, labels, word):
    logits = torch.eye(3)[torch.arange(6) % 3]
    features = answered(lambda: Features(values, labels, np.arange(6).astype(str), "x"))
    answered(lambda: trust.fit(word, Predictions(logits, torch.arange(6) % 3, split="val"), features))


SIX = Predictions(torch.eye(3, dtype=torch.float64)[[0, 1, 2, 0, 1, 1]] * 3, torch.arange(6) % 3, split="val")
SIXTY = Predictions(SIX.logits.repeat(10, 1), SIX.labels.repeat(10), split="val")


@given(arrays(), LABELS, st.sampled_from([m.word for m in calibrators.CALIBRATORS if m.spec.wants != "nothing"]))
@QUICK
def test_calibrators_that_look_at_anything(values, labels, word):
    rows = answered(lambda: Features(values, labels, SIX.ids, "x"))
    fitted = answered(lambda: calibrators.fit(word, SIX, features=values, fitted=values if rows is None else rows))
    if fitted is not None:
        calibrated = answered(lambda: fitted(SIX, features=values))
        assert calibrated is None or bool(torch.isfinite(calibrated.logits).all())


RATES = st.sampled_from((0.1, 0.5, 0.0, 1.0, -1, 2, float("nan"), "x", None))


@given(arrays(), LABELS, RATES, st.sampled_from(sets.names()), st.sampled_from((None, "class", "cluster", "x", 5)))
@QUICK
def test_sets_and_operating_points_of_anything(values, labels, rate, word, by):
    made = answered(lambda: Predictions(values, labels, split="val"))
    if made is not None:
        fitted = answered(lambda: sets.fit(word, made, rate, by=by))
        if fitted is not None:
            assert answered(lambda: fitted(made)) is not None
        answered(lambda: confide.operating_point(made, risk=rate))
        answered(lambda: confide.operating_point(made, coverage=rate, per_class=by == "class"))
    answered(lambda: sets.fit(word, SIX, 0.5, weights=values))


@given(arrays(), arrays(), st.sampled_from((None, 0, 1, -1, 1.5, 10**30, float("nan"), "x")))
@QUICK
def test_decisions_by_any_cost(costs, abstain, capacity):
    decided = answered(lambda: decisions.decide(SIX, costs, abstain, capacity))
    assert decided is None or bool(((decided.actions >= -1) & (decided.actions < 60)).all())


@given(arrays(), LABELS, RATES)
@settings(QUICK, max_examples=EXAMPLES // 3)
def test_a_watch_over_anything(values, labels, rate):
    with TemporaryDirectory() as folder:
        file = Path(folder) / "watch.jsonl"
        watch = answered(lambda: monitor.Monitor(SIXTY, risk=rate, file=file)) or monitor.Monitor(SIXTY, file=file)
        week = answered(lambda: Predictions(values, labels))
        if week is not None and len(week):
            answered(lambda: watch.update(week))
        answered(lambda: watch.labels([0, 1], labels, weights=values))
        assert monitor.Monitor(file=file).alarms == watch.alarms


@given(arrays(rows=60), LABELS, RATES)
@QUICK
def test_slices_by_anything(values, labels, level):
    columns = answered(lambda: SIXTY.replace(columns={"a": values}))
    if columns is not None:
        answered(lambda: confide.evaluation.find_slices(columns, level=level))
    answered(lambda: confide.evaluation.find_slices(SIXTY, features=values, by=labels))


# What is no class of one sample: answers, several labels, pixels, boxes, weights, counted cells.

TEXTS = st.one_of(
    st.lists(st.sampled_from(("85 %", "likely", "0.6", "", "²", "1e999", "-5", None, 3, ["a", "b"])), max_size=6),
    st.just(["90 %"] * 6),
    arrays(),
)


@given(TEXTS, LABELS, arrays(), RATES)
@QUICK
def test_answers_of_anything(texts, labels, values, rate):
    answered(lambda: answers.verbalised(texts, labels, unparsed=rate))
    answered(lambda: answers.verbalised(["90 %"] * 6, labels, questions=values))
    answered(lambda: answers.multiple_choice(values, labels))
    answered(lambda: answers.agreement([["a", "b", "a"]] * 6, texts))
    answered(lambda: answers.agreement(texts, correct=labels))


@given(arrays(), arrays(), RATES)
@QUICK
def test_several_labels_of_anything(values, labels, rate):
    made = answered(lambda: Predictions.multilabel(values, labels, split="val"))
    if made is not None and len(made):
        answered(lambda: float(metrics.ece(made)))
        answered(lambda: confide.evaluation.label_thresholds(made, precision=rate))
        answered(lambda: confide.evaluation.label_thresholds(made, costs={"miss": rate, "false_alarm": 1}))
    answered(lambda: Predictions.multilabel(probs=values, labels=labels))


@given(arrays(), arrays(), RATES)
@QUICK
def test_pixels_and_boxes_of_anything(values, labels, rate):
    answered(lambda: confide.dense.pixels(values, labels))
    answered(lambda: confide.dense.pixels([values, values], [labels, labels], ignore_index=0))
    whole = torch.zeros(1, 3, 2, 2), torch.ones(1, 2, 2, dtype=torch.long)
    answered(lambda: confide.dense.pixels(*whole, most=rate))
    answered(lambda: confide.dense.pixels(whole[0], labels))
    answered(lambda: confide.dense.boundary_distance(labels))
    one = [np.array([[0.0, 0, 1, 1]])], [np.array([0.5])], [np.array([0])], [np.array([[0.0, 0, 1, 1]])]
    answered(lambda: confide.dense.boxes(*one, [np.array([0])], iou=rate))
    for place in range(5):
        parts = [*one, [np.array([0])]]
        parts[place] = [values]
        answered(lambda parts=parts: confide.dense.boxes(*parts))


@given(arrays(), RATES)
@QUICK
def test_weights_and_shares_of_anything(values, rate):
    answered(lambda: float(metrics.ece(SIX.weighted(values))))
    answered(lambda: calibrators.fit("temperature", SIX, weights=values))
    answered(lambda: calibrators.fit("temperature", SIX, prior=values))
    answered(lambda: confide.evaluate(SIX, ["accuracy"], False, prior=values))
    answered(lambda: SIX.with_prior(values, trained=rate))
    answered(lambda: confide.evaluation.sketch_of(values))


# The command line.

WORDS = (
    *("", "x", "-1", "0", "1.5", "nan", "1e999", "9" * 30, "²", "\ud800", "a=b", "a.b=["),
    *("../..", "/dev/null", "\x1b[2J", "ece<"),
)
UNTRIED = {"demo", "doctor", "train"}
"""These work long, or look at the machine; what a training is told is fuzzed as a config."""


@pytest.mark.parametrize("verb", sorted(set(VERBS) - UNTRIED))
def test_words_of_the_command_line(verb, tmp_path, monkeypatch, capfd):
    from importlib import import_module

    monkeypatch.chdir(tmp_path)
    predictions = Predictions(torch.randn(30, 3, generator=torch.Generator().manual_seed(0)), torch.arange(30) % 3)
    predictions.save(tmp_path / "val.npz")
    parser = argparse.ArgumentParser(exit_on_error=False)
    import_module(f"confide.cli.{verb.replace('-', '_')}").configure(parser)
    flags = [action.option_strings[0] for action in parser._actions if action.option_strings]
    draws = random.Random(verb)
    for _ in range(12):
        words = ["val.npz"] * draws.choice((0, 1, 1, 1, 2)) + [draws.choice(WORDS)] * draws.choice((0, 0, 1))
        for flag in draws.sample(flags, k=min(len(flags), draws.choice((0, 1, 2)))):
            words += [flag, draws.choice((*WORDS, "val.npz", "temperature"))]
        if verb == "explore":
            words += ["--export", "out.csv"]
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            try:
                status = main([verb, *words])
            except SystemExit as stop:
                status = stop.code
        printed = capfd.readouterr().err
        assert status in (0, 1, 2, 3), (words, status)
        assert "Traceback" not in printed, words
        if status == 1:
            assert printed.count("\n") == 1, (words, printed)


# The routes.


def test_queries_of_anything(app):
    draws = random.Random(0)
    keys = (
        *("label", "prediction", "outcome", "difficulty", "confidence", "trust", "loss", "split", "verdict", "tag"),
        *("c.camera", "search", "sort", "model", "stage", "with", "cells", "disagree", "view", "sample", "open"),
        *("text", "format", "what", "cell", "id", "in", "small", "x"),
    )
    values = (
        *WORDS,
        *("1", "test", "right", "0.1..0.9", "-difficulty", "plain", "other-loss", "raw", "temperature", "rw", "csv"),
    )
    routes = (
        *("about", "find", "rows", "locate", "compare", "classes", "export", "sample", "neighbours", "parts"),
        *("history", "picture", "views", "nothing"),
    )
    targets = []
    for _ in range(250):
        pairs = [("row", "3"), ("from", "0"), ("count", "5")] if draws.random() < 0.7 else []
        pairs += [(draws.choice(keys), draws.choice(values)) for _ in range(draws.choice((0, 1, 1, 2, 4)))]
        query = "&".join(f"{quote(k)}={quote(v, errors='replace')}" for k, v in pairs)
        targets.append(f"/api/{draws.choice(routes)}?{query}")
    replies = ask_all(app, targets)
    bad = [(t, r) for t, r in zip(targets, replies, strict=True) if r.status not in (200, 400, 404, 422)]
    assert bad == []
    assert sum(reply.status == 200 for reply in replies) > 20
