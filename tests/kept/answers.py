"""Worked cases of answers of language models, of pixels and of boxes."""

from __future__ import annotations

import json
import warnings
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np

from tests.kept.entries import (
    _or_line,
    predictions,
)


def told(make: Callable[[], Any]) -> Any:
    """All that a record tells, and what was warned of; or the one line that refuses."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        record = _or_line(make)
    lines = [str(warning.message) for warning in caught]
    if isinstance(record, str):
        return {"line": record, "warned": lines}
    facts = record.facts
    return {
        "shown": repr(record),
        "ids": [str(own) for own in record.ids[:30]],
        "labels": record.labels.tolist() if record.has_labels else None,
        "right": None if facts.right is None else facts.correct.tolist(),
        "confidence": facts.sureness().tolist() if len(record) else [],
        "columns": {name: [str(v) for v in own[:60]] for name, own in record.columns.items()},
        "unit": record.unit,
        "split": record.split,
        "names": record.class_names,
        "warned": lines,
    }


def answer_entries() -> Iterator[tuple[str, Callable[[], Any]]]:
    from confide import answers

    rows = [[-1.0, -2.0, -4.0], [-3.0, -2.0], [0.0, -0.5, -9.0]]
    choices: dict[str, Any] = {
        "plain": ((rows, [0, 1, 2]), {}),
        "lengths": ((rows, [0, 1, 2]), {"lengths": [[1, 2, 3], [4, 1], [9, 1, 1]]}),
        "lengths of nothing": ((rows,), {"lengths": [[1, 2, 3], [4, 0], [9, 1, 1]]}),
        "lengths of others": ((rows,), {"lengths": [[1, 2], [4, 1], [9, 1, 1]]}),
        "topics": ((rows, [0, 0, 0]), {"topics": ["a", "b", "a"], "split": "val", "ids": ["x", "y", "z"]}),
        "few topics": ((rows,), {"topics": ["a"]}),
        "one choice": (([[0.0], [1.0, 2.0]],), {}),
        "words": (([["a", "b"]],), {}),
        "nested": (([[[1.0, 2.0]]],), {}),
        "infinite": (([[0.0, float("inf")]],), {}),
        "no list": ((5,), {}),
        "a word": (("ab",), {}),
        "label beyond": ((rows, [0, 2, 0]), {}),
        "label a word": ((rows, ["0", 1, 0]), {}),
        "label at the end": ((rows, [2, 1, 2]), {}),
        "few labels": ((rows, [0, 1]), {}),
        "many choices": (([list(range(26)), list(range(3))],), {}),
        "more choices": (([list(range(27))],), {}),
        "none": (([],), {}),
    }
    for name, (args, options) in choices.items():
        yield f"choice {name}", lambda a=args, o=options: told(lambda: answers.multiple_choice(*a, **o))
    texts = [
        "85 %",
        "I am 0.7 sure",
        "likely",
        "unlikely, 3/10",
        "nothing",
        "100",
        "1",
        "0",
        "almost certain",
        "7 of 10",
    ]
    texts += ["between 60 % and 80 %", "120 %", "-5 %", "1.0", "ten", "Confidence: 9/10", "50", "0,5", "90%.", ""]
    yield "stated", lambda: [answers.parse_confidence(text) for text in texts]
    yield "stated out of ten", lambda: [answers.parse_confidence(text, out_of=10) for text in texts]
    right = [k % 2 for k in range(len(texts))]
    for name, options in {
        "plain": {},
        "unparsed": {"unparsed": 0.5},
        "questions": {"questions": [k // 2 for k in range(len(texts))], "topics": ["a"] * len(texts)},
        "out of range": {"unparsed": 1.5},
    }.items():
        yield f"verbalised {name}", lambda o=options: told(lambda: answers.verbalised(texts, right, **o))
    yield "verbalised of nothing", lambda: told(lambda: answers.verbalised(["nothing"], [1]))
    yield "verbalised without judgement", lambda: told(lambda: answers.verbalised(texts))
    samples = [["Paris", "paris.", "Rome"], ["a", "b"], ["x", "x", "y", "y"], ["The end", "end"]]
    for name, (args, options) in {
        "plain": ((samples,), {}),
        "references": ((samples, ["Paris", "b", "y", "an end"]), {}),
        "several references": ((samples, [["Rome", "Paris"], "b", ["z"], "end"]), {}),
        "answers": ((samples, ["Paris", "b", "y", "end"]), {"answers": ["Rome", "b", "z", "end"]}),
        "judged": ((samples,), {"correct": [[1, 1, 0], [0, 1], [1, 1, 0, 0], [0, 0]]}),
        "judged once": ((samples,), {"correct": [1, 0, 1, 0]}),
        "judged oddly": ((samples,), {"correct": [[1, 1, 0], [0, 1], [1, 1, 0], [0, 0]]}),
        "own rule": ((samples,), {"same": lambda a, b: a[0] == b[0]}),
        "one sample": (([["a"], ["b", "b"]],), {}),
        "no sample": (([[], ["b", "b"]],), {}),
    }.items():
        yield f"agreement {name}", lambda a=args, o=options: told(lambda: answers.agreement(*a, **o))
    yield "normalised", lambda: [answers.normalised(text) for text in ("The  Cat.", "an A", "7,5 %", " x\ty ", "")]
    tables = {
        "stated.csv": ("id,said,right,q,t\na,85 %,1,q1,x\nb,unlikely,0,q1,y\nc,none,1,q2,x\n", {"stated": "said"}),
        "judged.csv": ("id,said,right\na,85 %,1\nb,unlikely,0\n", {"stated": "said", "correct": "right"}),
        "asked.csv": (
            "said,right,q,t\n85 %,1,q1,x\n0.2,0,q1,y\n",
            {"stated": "said", "correct": "right", "question": "q", "topic": "t", "split": "val"},
        ),
        "samples.jsonl": (
            '{"s": ["a", "a", "b"], "ref": "a", "ok": [1, 1, 0]}\n{"s": ["c", "d"], "ref": "d", "ok": [0, 1]}\n',
            {"samples": "s", "reference": "ref"},
        ),
        "judged.jsonl": (
            '{"s": ["a", "a", "b"], "ok": [1, 1, 0]}\n{"s": ["c", "d"], "ok": [0, 1]}\n',
            {"samples": "s", "correct": "ok"},
        ),
        "json.csv": (
            's,ref\n"[""a"", ""a"", ""b""]","[""b"", ""a""]"\n"[""c""]",d\n',
            {"samples": "s", "reference": "ref"},
        ),
        "scalars.csv": ("s\na\nb\n", {"samples": "s"}),
        "choices.jsonl": ('{"l": [-1, -2], "y": 0}\n{"l": [-3, -2], "y": 0}\n', {"log_probs": "l", "label": "y"}),
        "both.jsonl": ('{"l": [-1, -2], "y": 0}\n', {"log_probs": "l", "stated": "y"}),
        "neither.jsonl": ('{"l": [-1, -2], "y": 0}\n', {}),
        "question.jsonl": ('{"l": [-1, -2], "y": 0}\n', {"log_probs": "l", "question": "y"}),
        "unknown.jsonl": ('{"l": [-1, -2], "y": 0}\n', {"log_probs": "x"}),
    }
    for name, (text, options) in tables.items():
        yield f"table {name}", partial(_of_file, "from_table", name, text, options)
    uqlm = "response,ref,score,ok,t\nParis,paris,0.9,1,a\n1900,1901,0.4,0,b\nx,x,,1,a\n"
    for options in (
        {"correct": "ok"},
        {"references": "ref"},
        {"topic": "t", "split": "test"},
        {"correct": "no"},
        {"score": "ref"},
    ):
        yield f"uqlm {options}", partial(_of_file, "from_uqlm", "u.csv", uqlm, {"score": "score", **options})
    yield (
        "uqlm alone",
        partial(_of_file, "from_uqlm", "u.csv", "answer,ref,score\na,a,1\n", {"score": "score", "references": "ref"}),
    )

    def line(number: int, **own: Any) -> str:
        return json.dumps({"doc_id": number, "target": "1", "filtered_resps": [["-3.1", "x"], ["-0.4", "y"]], **own})

    doc, calls = {"doc": {"subject": "law"}}, {"arguments": [["q", " left"], ["q", " rightmost"]]}
    said = "Paris. Confidence: 85 %"
    generated = {"filtered_resps": ["Paris"], "resps": [[said]], "exact": 1.0, "metrics": ["exact"]}
    several = {"filtered_resps": ["a"], "resps": [["a", "a", "b"]], "exact": 0.0}
    for name, (lines, options) in {
        "places": ([line(0, acc=1.0), line(1, target="0", acc=0.0)], {}),
        "judged otherwise": ([line(0, acc=0.0), line(1, acc=1.0)], {}),
        "per length": (
            [line(0, acc_norm=1.0, **calls), line(1, target="0", acc_norm=0.0, **calls)],
            {"per_length": True},
        ),
        "texts": ([line(0, target="rightmost", **calls)], {}),
        "named calls": (
            [line(0, target="left", arguments={"a": {"x": "q", "y": "left"}, "b": {"x": "q", "y": "r"}})],
            {},
        ),
        "unknown text": ([line(0, target="middle", **calls)], {}),
        "topic": ([line(0, **doc), line(1, **doc)], {"topic": "subject", "split": "test"}),
        "no topic": ([line(0, **doc), line(1)], {"topic": "subject"}),
        "near topic": ([line(0, **doc)], {"topic": "subjects"}),
        "generated": ([line(0, **generated), line(1, **{**generated, "exact": 0.0})], {}),
        "generated without a word": ([line(0, **{**generated, "resps": [["85 %"]]})], {}),
        "generated by name": ([line(0, **generated, other=0.0)], {"metric": "other"}),
        "two metrics": ([line(0, **{**generated, "metrics": ["exact", "f1"]})], {}),
        "no metric": ([line(0, **{**generated, "metrics": None})], {}),
        "a fraction": ([line(0, **{**generated, "exact": 0.5})], {}),
        "sampled": ([line(0, **several), line(1, **several)], {"metric": "exact"}),
        "sampled once": (
            [line(0, **several), line(1, **{**several, "resps": [["a"]]})],
            {"metric": "exact", "unparsed": 0.3},
        ),
        "mixed": ([line(0), line(1, **generated)], {}),
        "lacking": (['{"doc_id": 0, "target": 1}'], {}),
        "empty": ([line(0, filtered_resps=[])], {}),
        "odd document": ([line(0, doc=[1])], {}),
        "a list": (["[1]"], {}),
        "no answers": ([""], {}),
    }.items():
        yield (
            f"lm-eval {name}",
            partial(_of_file, "from_lm_eval", "samples_arc_2024-05-01T10-00-00.jsonl", "\n".join(lines), options),
        )


def _of_file(function: str, name: str, text: str, options: dict[str, Any]) -> Any:
    from confide import answers

    with TemporaryDirectory() as folder:
        (Path(folder) / name).write_text(text)
        out = told(lambda: getattr(answers, function)(Path(folder) / name, **options))
        return json.loads(json.dumps(out).replace(folder, "FOLDER"))


def dense_entries() -> Iterator[tuple[str, Callable[[], Any]]]:
    from confide import dense

    draw = np.random.default_rng(2)
    logits = draw.normal(size=(2, 3, 5, 4))
    masks = np.where(draw.random((2, 5, 4)) < 0.2, 255, draw.integers(0, 3, (2, 5, 4)))
    probs = np.exp(logits) / np.exp(logits).sum(axis=1, keepdims=True)
    for name, options in {
        "plain": {},
        "boundary": {"boundary": [1, 2]},
        "one edge": {"boundary": [1.5]},
        "no edge": {"boundary": []},
        "edges down": {"boundary": [2, 1]},
        "most": {"most": 4, "seed": 1},
        "most all": {"most": 100},
        "most none": {"most": 0},
        "names": {"class_names": ["a", "b", "c"], "ids": ["x", "y"], "split": "val"},
        "few ids": {"ids": ["x"]},
    }.items():
        yield f"pixels {name}", lambda o=options: told(lambda: dense.pixels(logits, masks, **o))
    yield "pixels of probabilities", lambda: told(lambda: dense.pixels(probs=probs, labels=masks))
    yield "pixels of one image", lambda: told(lambda: dense.pixels(logits[:1], masks[:1], boundary=[1]))
    yield "pixels that fit not", lambda: told(lambda: dense.pixels(logits, masks[:, :4]))
    yield "pixels of more masks", lambda: told(lambda: dense.pixels(logits[:1], masks))
    yield "pixels all ignored", lambda: told(lambda: dense.pixels(logits, np.full_like(masks, 255)))
    yield (
        "pixels of another index",
        lambda: told(lambda: dense.pixels(logits, np.where(masks == 255, 7, masks), ignore_index=7)),
    )
    edges = np.array([[0, 0, 1, 1], [0, 0, 1, 1], [2, 255, 1, 1]])
    yield "distance", lambda: dense.boundary_distance(edges).tolist()
    yield "distance of one class", lambda: np.isinf(dense.boundary_distance(np.zeros((3, 3), int))).tolist()
    yield "distance of a row", lambda: dense.boundary_distance(np.array([[0, 0, 0, 1]])).tolist()
    whole = dense.pixels(logits, masks, ids=["x", "y"])
    yield "maps", lambda: [[str(v) for v in part.reshape(-1)] for part in dense.maps(whole, "y")]
    yield "maps of nobody", lambda: _or_line(lambda: dense.maps(whole, "z"))
    yield "are pixels", lambda: [dense.are_pixels(whole), dense.are_pixels(predictions())]
    found = [
        [[0, 0, 10, 10], [1, 1, 11, 11], [50, 50, 60, 60]],
        [[0, 0, 31, 31], [0, 0, 32, 32], [0, 0, 96, 96], [5, 5, 5, 9]],
    ]
    sure, kinds = [[0.9, 0.8, 0.7], [0.5, 0.6, 0.7, 0.4]], [[0, 0, 1], [0, 1, 1, 0]]
    real, real_kinds = [[[0, 0, 10, 10], [50, 50, 58, 60]], [[0, 0, 33, 33], [0, 0, 90, 90]]], [[0, 1], [1, 1]]
    for name, options in {
        "plain": {},
        "low": {"iou": 0.1},
        "exact": {"iou": 1.0},
        "zero": {"iou": 0.0},
        "beyond": {"iou": 1.1},
        "at": {"iou": 0.8},
        "names": {"class_names": ["cat", "dog"], "ids": ["x", "y"], "split": "val"},
    }.items():
        yield f"boxes {name}", lambda o=options: told(lambda: dense.boxes(found, sure, kinds, real, real_kinds, **o))
    for name, parts in {
        "few scores": (found, [[0.9, 0.8], sure[1]], kinds, real, real_kinds),
        "few classes": (found, sure, [[0, 0], kinds[1]], real, real_kinds),
        "few real classes": (found, sure, kinds, real, [[0], [1, 1]]),
        "few images": (found, sure[:1], kinds, real, real_kinds),
        "halves": (found, sure, [[0, 0.5, 1], kinds[1]], real, real_kinds),
        "no boxes": ([[], []], [[], []], [[], []], real, real_kinds),
        "none real": (found, sure, kinds, [[], []], [[], []]),
        "three corners": ([[[0, 0, 1]], []], [[0.5], []], [[0], []], real, real_kinds),
        "words": ([["a"], []], [[0.5], []], [[0], []], real, real_kinds),
        "no image": ([], [], [], [], []),
        "a number": (5, sure, kinds, real, real_kinds),
    }.items():
        yield f"boxes of {name}", lambda p=parts: told(lambda: dense.boxes(*p))
    yield "overlaps", lambda: dense.overlaps(np.array(found[0], float), np.array(real[0], float)).tolist()
    yield "areas", lambda: dense.areas(np.array([[0, 0, 2, 3], [2, 2, 1, 5]], float)).tolist()
    box = {"image_id": 7, "category_id": 3, "bbox": [0, 0, 10, 10]}
    names = {"categories": [{"id": 3, "name": "cup"}, {"id": 9, "name": "pot"}]}
    for name, (detected, known) in {
        "one": ([{**box, "score": 0.8}], {"annotations": [box], **names}),
        "crowd": ([{**box, "score": 0.8}], {"annotations": [{**box, "iscrowd": 1}], **names}),
        "shifted": (
            [{**box, "bbox": [2, 0, 10, 10], "score": 0.8}],
            {"annotations": [box, {**box, "image_id": 8}], **names},
        ),
        "unknown": ([{**box, "category_id": 4, "score": 0.8}], {"annotations": [box], **names}),
        "lacking": ([{"image_id": 7}], {"annotations": [box], **names}),
        "no list": ({"a": 1}, {"annotations": [box], **names}),
    }.items():
        yield f"coco {name}", partial(_coco, detected, known)


def _coco(detected: Any, known: Any) -> Any:
    from confide import dense

    with TemporaryDirectory() as folder:
        paths = [Path(folder) / name for name in ("d.json", "a.json")]
        for path, content in zip(paths, (detected, known), strict=True):
            path.write_text(json.dumps(content))
        return json.loads(json.dumps(told(lambda: dense.from_coco(*paths))).replace(folder, "FOLDER"))
