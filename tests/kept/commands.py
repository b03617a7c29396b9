"""Worked cases of the command line: what people see printed, and the files that are written."""

from __future__ import annotations

import atexit
import json
import re
import shutil
from collections.abc import Callable, Iterator
from contextlib import redirect_stderr, redirect_stdout
from functools import cache, partial
from io import StringIO
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any
from unittest.mock import patch

import numpy as np

import confide
from confide import calibrators, sets, trust
from confide.predictions import Predictions
from tests.kept.entries import (
    N,
    brief,
    features,
    predictions,
    rows_of,
    weighted,
)


@cache
def inputs_of_commands() -> Path:
    """Small files of every kind that a command reads."""
    kept = TemporaryDirectory()
    atexit.register(kept.cleanup)
    folder = Path(kept.name).resolve()
    for split in ("val", "test"):
        record = predictions(split)
        record.save(folder / f"{split}.npz")
        weighted(split).save(folder / f"{split}_weighted.npz")
        Predictions(0.6 * record.logits, record.labels, split=split).save(folder / f"{split}_other.npz")
        Predictions(record.logits[:, [1, 0, 2, 3]], record.labels, split=split).save(folder / f"{split}_worse.npz")
        Predictions(record.logits, split=split).save(folder / f"{split}_unlabelled.npz")
        (folder / f"{split}_shards").mkdir()
        for k, rows in enumerate(np.array_split(np.arange(N), 3)):
            record.take(rows).save(folder / f"{split}_shards" / f"{k}.parquet")
        confide.Scores(record.ids, np.linspace(-1, 1, N) ** 3, "rmd", {}, record.labels.numpy()).save(
            folder / f"{split}_scores.parquet"
        )
        rows_of(split).save(folder / f"{split}_features.npz")
    rows_of("train").save(folder / "train_features.npz")
    Predictions.multilabel(features("val")[:, :3], (features("train")[:, :3] > 0).astype(int), split="val").save(
        folder / "several.npz"
    )
    sure = np.where(np.arange(900).reshape(300, 3) % 2, 4.0, -4.0)
    Predictions.multilabel(sure, (sure > 0).astype(int), split="val").save(folder / "sure.npz")
    two = predictions("test")
    Predictions(two.logits[:, :2], (two.labels == 1).long(), split="test").save(folder / "two.npz")
    (folder / "costs.csv").write_text("0,1,2,3\n1,0,1,2\n2,1,0,1\n3,2,1,0\n")
    (folder / "costs.yaml").write_text("[[0, 1, 1, 1], [5, 0, 5, 5], [1, 1, 0, 1], [1, 1, 1, 0]]\n")
    (folder / "audited.csv").write_text("id,label\n" + "".join(f"{k},{int(two.labels[k])}\n" for k in range(60)))
    (folder / "bad.csv").write_text("name,label\na,1\n")
    (folder / "stated.csv").write_text(
        "said,right,topic,question\n85 %,1,a,q1\nlikely,0,b,q1\n0.3,1,a,q2\nno idea,0,b,q3\n"
    )
    images = (np.random.default_rng(0).integers(0, 120, (120, 6, 6)) + 60 * (np.arange(120) % 2)[:, None, None]).astype(
        np.uint8
    )
    np.savez(folder / "images.npz", images=images, labels=np.arange(120) % 2)
    np.savez(folder / "others.npz", images=images[:, ::-1] // 2, labels=np.arange(120) % 2)
    (folder / "image_scores.csv").write_text(
        "id,score\n" + "".join(f"sample-{k:05d},{(k * 37) % 120 / 10}\n" for k in range(120))
    )
    masks = np.random.default_rng(1)
    np.savez(
        folder / "masks.npz",
        logits=masks.normal(size=(3, 4, 6, 5)).astype(np.float32),
        labels=np.where(masks.random((3, 6, 5)) < 0.1, 255, masks.integers(0, 4, (3, 6, 5))),
    )
    settings = confide.training.Settings(model="mlp", epochs=1, device="cpu")
    confide.training.fit(confide.load_dataset(str(folder / "images.npz")), settings, folder=folder / "model")
    calibrators.fit("temperature", predictions()).save(folder / "calibrator.json")
    sets.fit("lac", predictions(), 0.8).save(folder / "sets.json")
    confide.operating_point(predictions(), 0.3).save(folder / "point.json")
    confide.operating_point(predictions(), {"error": 0.3, "fpr[ant]": 0.5}).save(folder / "risks.json")
    trust.fit("mcp").save(folder / "trust.json")
    return folder


def printed(*words: str) -> Any:
    """What a command prints in a folder with small files; the workers of an engine are this process.

    Progress, which only slow work shows, depends on the machine and is left out.
    """
    from confide import scale
    from confide.cli.main import main
    from confide.progress import Progress

    def unseen(progress: Progress, by: int = 1, note: str = "") -> None:
        pass

    def map_items(function: Callable[[Any], Any], items: Any, *, engine: str, workers: int, what: str) -> None:
        print(f"{engine}, {workers} workers: {what}, {len(items)}")
        for item in items:
            function(item)

    with (
        TemporaryDirectory() as name,
        patch.object(scale, "map_items", map_items),
        patch.object(Progress, "step", unseen),
    ):
        folder = Path(name).resolve() / "work"
        shutil.copytree(inputs_of_commands(), folder)
        out, err = StringIO(), StringIO()
        with redirect_stdout(out), redirect_stderr(err):
            try:
                status = main([word.replace("@", f"{folder}/") for word in words])
            except SystemExit as stop:
                status = stop.code
        text, said = (stream.getvalue().replace(str(folder), "FOLDER") for stream in (out, err))
        result = {"status": status, "said": said.splitlines(), "written": _written(folder)}
        if "--json" in words and text:
            return {**result, "printed": brief(_without_times(json.loads(text)))}
        lines = [line.rstrip() for line in text.splitlines() if " s, " not in line and " ms a sample" not in line]
        return {**result, "printed": lines}


def _without_times(value: Any) -> Any:
    if isinstance(value, dict):
        return {k: _without_times(v) for k, v in value.items() if k not in ("time", "versions") and "second" not in k}
    return [_without_times(v) for v in value] if isinstance(value, list) else value


def _written(folder: Path) -> list[str]:
    """New files of a command, the names of parts without what their paths make of them."""
    known = inputs_of_commands()
    files = (path.relative_to(folder) for path in folder.rglob("*") if path.is_file())
    names = {re.sub(r"-[0-9a-f]{16}\b", "-KEY", str(path)) for path in files if not (known / path).exists()}
    return sorted(names)


COMMANDS = """
evaluate @test.npz --out @e
evaluate @test.npz
evaluate @test_weighted.npz --out @e --metrics all
evaluate @several.npz --out @e
evaluate @test.npz --out @e --by site --no-intervals
evaluate @test.npz --out @e --by site class --metrics accuracy ece --title Mine
evaluate @test.npz --out @e --metrics accuracy --expect accuracy>0.5 --expect nll<9
evaluate @test.npz --out @e --metrics core --expect accuracy>0.99 --json
evaluate @test.npz --out @e --metrics accuracy --expect accuracy>0.5 --expect-surely accuracy>0.89
evaluate @test.npz --out @e --metrics accuracy --expect accuracy>0.5 --expect-surely
evaluate @test.npz --out @e --expect-surely
evaluate @test.npz --out @e --no-intervals --expect-surely accuracy>0.5
evaluate @test.npz --out @e --scores @test_scores.parquet --metrics accuracy
evaluate @test.npz --out @e --score margin --metrics auroc accuracy
evaluate @test.npz --out @e --prior 0.1 0.2 0.3 0.4 --metrics accuracy nll
evaluate @test.npz --out @e --prior ant=0.1 bee=0.2 cat=0.3 dog=0.4 --metrics accuracy
evaluate @test.npz --out @e --prior ant=x --metrics accuracy
evaluate @test.npz --out @e --unit site --metrics accuracy
evaluate @test_shards --out @e --sketch --metrics accuracy auroc --by site
evaluate @test_shards --exact --metrics auroc --no-intervals
evaluate @test_shards --out @e --engine local --metrics core --expect accuracy>0.99
evaluate @test_shards --out @e --engine local --workers 5 --metrics auroc --expect accuracy>0.5 --title Mine
evaluate @test_shards --out @e --sketch --metrics core --expect-surely ece<0.5
evaluate @test_unlabelled.npz --out @e
compare @test.npz @test_other.npz
compare @test.npz @test_other.npz --json
compare @test.npz @test_other.npz @test_worse.npz --metrics accuracy nll --names a b c
compare @test.npz @test_other.npz --names a
compare @test.npz @test.npz --metrics accuracy
compare @test_weighted.npz @test_other.npz --metrics core --unit site
compare @test.npz @test_other.npz --against @test_worse.npz @val.npz --metrics accuracy
compare @test.npz @test_other.npz --against @test_worse.npz @test_worse.npz --metrics accuracy nll --names x y
compare @test.npz @test_other.npz --against @test_worse.npz @test.npz @test_worse.npz --metrics all
compare @test.npz @test_other.npz --against @test_worse.npz @test_worse.npz --json --metrics core
compare @test.npz @test_other.npz --against @test_worse.npz @test_worse.npz --names x
calibrate --fit @val.npz --apply @test.npz --methods temperature histogram --out @c.npz
calibrate --fit @val.npz --apply @test.npz --json --methods temperature vector
calibrate --fit @val.npz --apply @test.npz --methods temperature --save @t.json
calibrate --fit @val.npz --apply @test_unlabelled.npz --methods temperature --out @c.csv
calibrate --fit @val.npz --apply @test_unlabelled.npz --methods temperature --json
calibrate --fit @val.npz --apply @val.npz
calibrate --fit @val.npz --apply @test.npz --methods temperature --save @t.txt
calibrate --fit @val.npz --apply @test.npz --methods temperature --out @c.txt
calibrate --fit @val.npz --apply @test.npz --methods temperature --engine local
calibrate --fit @val.npz --apply @test.npz --methods temperature --workers 3
calibrate --fit @val.npz --apply @test.npz --methods temperature --exact
calibrate --fit @val_shards --apply @test.npz --methods vector --exact
calibrate --fit @val_shards --apply @test.npz --methods temperature --exact --by site
calibrate --fit @val_shards --apply @test_shards --methods temperature --exact --out @out
calibrate --fit @val_shards --apply @test.npz --methods temperature --engine local --out @c.npz
calibrate --fit @val.npz --apply @test_shards --methods temperature --engine local --workers 7 --out @out --parts @mine
calibrate --fit @val.npz --apply @test.npz --methods temperature --classes kept
calibrate --fit @val.npz --apply @test.npz --methods temperature --opinion knn
calibrate --fit @val.npz --apply @test.npz --methods temperature --opinion other=@val_other.npz
calibrate --fit @val.npz --apply @test.npz --methods temperature --opinion other=@val_other.npz,@test_other.npz
calibrate --fit @val.npz --apply @test.npz --methods second_opinion --opinion gaussian --features @val_features.npz \
@test_features.npz --fitted @train_features.npz --classes kept
operating-point @val.npz --risk 0.3
operating-point @val.npz
operating-point @val.npz --risk 0.3 --coverage 0.5
operating-point @val.npz --risk x
operating-point @val.npz --risk error=0.3 --risk fpr[ant]=0.5
operating-point @val.npz --risk error=0.3 --per-class
operating-point @val_weighted.npz --risk 0.3 --out @p.json
operating-point @val_weighted.npz --risk 0.4 --per-class
operating-point @val.npz --risk fpr=0.3 --promise expectation
operating-point @val.npz --risk 0.0001
operating-point @val.npz --coverage 0.8
operating-point @val.npz --coverage 0.8 --json
operating-point @val.npz --risk 0.4 --per-class --out @point.json
operating-point @test.npz --apply @point.json
operating-point @test.npz --apply @point.json --out @accepted.csv --json
operating-point @test_unlabelled.npz --apply @point.json
operating-point @test_unlabelled.npz --apply @risks.json --json
operating-point @test.npz --apply @risks.json
sets --fit @val.npz --apply @test.npz --coverage 0.8
sets --fit @val.npz --apply @test.npz --by class --json
sets --fit @val.npz --load @sets.json
sets --apply @test.npz
sets --fit @val.npz --apply @val.npz
sets --fit @val.npz --out @s.csv
sets --fit @val.npz --report @r
sets --fit @val.npz --save @s.json
sets --load @sets.json --apply @test.npz --out @s.csv --report @r
sets --load @sets.json --apply @test_unlabelled.npz
sets --fit @val.npz --apply @test.npz --by site
sets --fit @val.npz --apply @test.npz --by difficulty --scores @val_scores.parquet @test_scores.parquet --bands 2
sets --fit @val.npz --apply @test.npz --engine local
sets --fit @val_shards --apply @test_shards --engine local --out @out --report @r
sets --fit @val.npz --apply @test_shards --coverage 0.7
sets --fit @val_shards --apply @test.npz --by difficulty --scores @val_scores.parquet @test_scores.parquet
sets --fit @val.npz --coverage 0.999
slices @test.npz
slices @test.npz --json
decide @test.npz --miss 5 --false-alarm 1
decide @two.npz --miss 5 --false-alarm 1 --abstain 0.3
decide @two.npz --miss 5 --false-alarm 1 --capacity 10 --json
decide @two.npz --miss 5
decide @two.npz --miss 5 --false-alarm 1 --costs [[0,1],[5,0]]
decide @two.npz
decide @test.npz --costs @costs.csv --out @a.csv --save @rule.json
decide @test.npz --costs @costs.yaml --abstain 0.1 0.2 0.3 0.4 --report @r
decide @test.npz --costs @bad.csv
decide @test_weighted.npz --costs @costs.csv --calibrator @calibrator.json
labels @several.npz --f-beta 1
labels @several.npz --precision 0.6 --json
labels @several.npz --miss 5
labels @several.npz --miss 5 --false-alarm 1 --save @l.json --out @l.csv
labels @sure.npz --precision 0.6
labels @several.npz --precision 0.3
monitor @watch.jsonl --reference @val.npz --predictions @test.npz --name week --risk 0.5
monitor @watch.jsonl --reference @val.npz
monitor @watch.jsonl --risk 0.5
monitor @watch.jsonl --reference @val.npz --predictions @test_unlabelled.npz --labels @audited.csv --risk 0.05 \
--page @w.html
monitor @watch.jsonl --reference @val.npz --predictions @test_unlabelled.npz --labels @bad.csv
monitor @watch.jsonl --reference @val.npz --predictions @test_unlabelled.npz --point @point.json --json
trust @val.npz @test.npz --only mcp entropy margin --out @trust
trust @val.npz @test.npz --only mcp energy --json --out @trust
train @images.npz --set model=mlp --epochs 1 --device cpu --out @t
train @images.npz --set model=mlp --epochs 1 --device cpu --members 2 --out @t
train @images.npz --set model=mlp --epochs 1 --device cpu --members 0 --out @t
train @images.npz --set model=mlp --epochs 1 --device cpu --workers 0 --out @t
train @images.npz --set model=mlp --epochs 1 --device cpu --workers 1025 --out @t
train @images.npz --set model=mlp --epochs 1 --device cpu --checkpoint-seconds -1 --out @t
train @images.npz --set model=mlp --epochs 1 --device cpu --features pixels --out @t
train @images.npz --set model=mlp --epochs 1 --device cpu --json --out @t
predict @model @images.npz --split test --device cpu --out @p.parquet
predict @model @images.npz --split test --device cpu --out @p.parquet --trust @trust.json --ood
predict @model @images.npz --split val --device cpu --out @p.parquet --shift brightness --severity 2 \\
--write-features @f.npz
report @nothing
score @images.npz --features pixels -o @scores.parquet --gallery none
score @images.npz --features pixels -o @scores.parquet --gallery none --json
score @images.npz --features pixels -o @s.parquet --method rmd --method prototype --save-fit @f.safetensors
score @images.npz --features pixels -o @s.parquet --method loss --save-fit @f.safetensors
score @images.npz --features pixels -o @s.parquet --fitted @f.safetensors --method rmd
score @images.npz -o @s.parquet --fitted @f.safetensors --feature-option size=8
score @images.npz -o @s.parquet --fitted @f.safetensors --find-label-errors @l.csv --labels min
score @images.npz --features pixels -o @s.parquet --method rmd --method prototype --find-label-errors @l.csv
score @images.npz --features pixels -o @s.parquet --labels predicted --save-fit @f.safetensors --write-features @r.npz
score @train_features.npz -o @s.parquet --gallery none --no-verdicts
harden @images.npz --scores @image_scores.csv
harden @images.npz --scores @image_scores.csv --split all --fraction 0.05 -o @hard.parquet
harden @images.npz --scores @image_scores.csv --split all --fraction 0.05 --features pixels -o @hard
harden @images.npz --scores @image_scores.csv --split all --features @no_such -o @hard
harden --scores @image_scores.csv -o @hard
harden --scores @test_scores.parquet --predictions @test.npz --groups @g.parquet
harden --scores @test_scores.parquet --predictions @test.npz --bands 5 --groups @g.parquet --bands 1
harden --scores @test_scores.parquet --groups @g.parquet --threshold 0.5 --json
answers @stated.csv --stated said --correct right --topic topic --question question --out @a.parquet
answers @stated.csv --stated said --correct right --unparsed 0.5 --out @a.csv --json
answers @stated.csv --stated said --correct right --score x --out @a.csv
answers @stated.csv --from uqlm --out @a.csv
answers @stated.csv --from lm-polygraph --score x --out @a.csv
answers @stated.csv --out @a.csv
dense @masks.npz --out @d.parquet
dense @masks.npz --boundary 1 2 --most 10 --out @d.parquet --json
dense @masks.npz --truth @masks.npz --most 3 --out @d.parquet
dense @masks.npz --ignore-index 0 --most 7 --seed 3 --out @d.npz
run
run @no.yaml --recipe confide
explore @nothing
evalute
shift @model --data @images.npz --words brightness contrast --severities 1 3 --no-intervals --device cpu --out @s
shift @model --data @images.npz --words brightness --severities 2 --samples 20 --no-calibrate --no-intervals \
--ood @others.npz --trust mcp --device cpu --out @s
"""


def command_entries() -> Iterator[tuple[str, Callable[[], Any]]]:
    for line in COMMANDS.replace("\\\n", "").strip().splitlines():
        yield line, partial(printed, *line.split())
    yield "options of every verb", _options


def _options() -> Any:
    """Defaults, numbers of values, choices and needs of every flag."""
    from argparse import ArgumentParser
    from importlib import import_module

    from confide.cli.main import VERBS

    flags = {}
    for verb in VERBS:
        parser = ArgumentParser()
        import_module(f"confide.cli.{verb.replace('-', '_')}").configure(parser)
        flags[verb] = {
            action.dest: f"{action.default} {action.nargs} {action.choices} {action.required} {action.const}"
            for action in parser._actions
        }
    return flags
