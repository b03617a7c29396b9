"""Worked cases of the explorer: whole answers of every route on small folders and files, also beyond its sizes."""

from __future__ import annotations

import atexit
import json
import re
import socket
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing
from dataclasses import asdict
from functools import cache, partial
from importlib import import_module
from io import BytesIO
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any
from unittest.mock import patch
from zipfile import ZipFile

import numpy as np
from PIL import Image

import confide
from confide import dense
from confide.explorer import comparison, launch, open_layout, pixels, projection, reliability
from confide.explorer.access import is_local
from confide.explorer.server import create_app
from confide.explorer.session import Explorer
from confide.explorer.tags import SampleTag, TagFile
from confide.predictions import Predictions
from tests.explorer.conftest import make_run
from tests.hostile.conftest import ask
from tests.kept.entries import NAMES, N, _or_line, labels, predictions, rows_of


@cache
def explorer_app(source: str) -> Any:
    kept = TemporaryDirectory()
    folder = Path(kept.name).resolve()
    options: dict[str, Any] = {}
    if source in ("run", "run beyond", "tagged", "tagged before", "reported", "changed"):
        path = make_run(folder / "run", {"train": 16, "val": 24, "test": 36})
        if source == "tagged before":
            with closing(TagFile(path / "tags.sqlite")) as tags:
                for split, name, action, label, note in TAGGED:
                    tags.put(SampleTag(split, name, action, label, note))
        if source == "reported":
            confide.evaluate(predictions("test")).save(path / "evaluation.json")
    elif source == "visited":
        path = make_run(folder / "run", {"train": 16, "val": 24, "test": 96})
        for file in sorted((path / "predictions").glob("*.parquet")):
            own = Predictions.load(file)
            visit = np.array([f"v{k // 3}" for k in range(len(own))])
            own.replace(columns={**own.columns, "visit": visit}, unit="visit").save(file)
    elif source == "texts":
        texts = [f"a text of {k} " + "long " * (20 * k) for k in range(12)]
        rows = [{"text": text, "label": "ab"[k % 2], "id": f"t{k}"} for k, text in enumerate(texts)]
        (folder / "texts.jsonl").write_text("\n".join(map(json.dumps, rows)))
        path = folder / "predictions.parquet"
        ids = np.array([f"t{k}" for k in range(12)])
        Predictions(np.eye(2)[np.arange(12) % 2], np.arange(12) % 2, ids, "test").save(path)
        options = {"data": str(folder / "texts.jsonl")}
    elif source == "pictures":
        path = folder / "predictions.parquet"
        for k in range(8):
            place = folder / "pictures" / "ab"[k % 2]
            place.mkdir(parents=True, exist_ok=True)
            Image.new("RGB", (40 + k, 3000 if k == 0 else 30), (20 * k, 9, 9)).save(place / f"{k}.png")
        ids = np.array([f"{'ab'[k % 2]}/{k}.png" for k in range(8)] + ["a/none.png"])
        Predictions(np.eye(2)[np.arange(9) % 2], np.arange(9) % 2, ids, "test").save(path)
        rows_of("test").save(folder / "features.npz")
        options = {"data": str(folder / "pictures")}
    elif source == "pixels":
        path = folder / "pixels.parquet"
        draws = np.random.default_rng(0)
        truth = np.zeros((2, 5, 6), dtype=int)
        truth[:, 0] = 255
        own = dense.pixels(draws.normal(size=(2, 3, 5, 6)), truth, ids=["street", "field"])
        odd = {name: values.copy() for name, values in own.columns.items()}
        odd[dense.HEIGHT][0] = 0
        odd[dense.PLACE][1] = 30
        odd[dense.PLACE][2] = -1
        own.replace(columns=odd).save(path)
    elif source == "featured":
        path = folder / "predictions.parquet"
        predictions("test").save(path)
        rows_of("test").save(folder / "features.npz")
        options = {"features": folder / "features.npz"}
    elif source == "scores":
        path = folder / "scores.parquet"
        scores = confide.Scores(np.arange(N), np.linspace(-1, 1, N) ** 3, "rmd", {}, labels("test"))
        scores.save(path)
    elif source == "pairs":
        path = folder / "pairs.npz"
        Predictions.from_pairs([1, 0, 1, 1, 0, 1] * 10, np.linspace(0.3, 1, 60), topic=np.array(list("abc") * 20)).save(
            path
        )
    elif source == "unlabelled":
        path = folder / "new.npz"
        Predictions(predictions("test").logits, split="test", class_names=NAMES).save(path)
    else:
        path = folder / "predictions.parquet"
        predictions("test").save(path)
    explorer = Explorer(open_layout(path, **options))
    if source in ("texts", "pictures", "run", "run beyond"):
        explorer.pictures.load()
    if source in ("run", "run beyond", "featured", "visited"):
        with patch.object(projection, "UMAP_ROWS", -1):  # the same map whatever is installed
            explorer.map.plane()
    atexit.register(explorer.close)
    return create_app(explorer), kept, explorer


TAGGED = (
    ("test", "test-003", "drop", None, ""),
    ("val", "val-001", None, None, "n"),
    ("test", "test-035", "relabel", 2, "x"),
    ("test", "gone", "keep", None, ""),
)
RUN_TARGETS = """
about
alive
report
classes
classes?text=co
classes?text=zzz
find?
find?row=3&from=0&count=5
find?split=test
find?split=val&split=test
find?label=1
find?label=coat&label=shirt
find?label=
find?label=4
find?label=3
find?prediction=1&outcome=right
find?outcome=wrong
find?difficulty=1..2
find?difficulty=..1
find?difficulty=1..
find?difficulty=..
find?difficulty=x..y
find?confidence=0.5..0.5
find?c.camera=phone
find?c.camera=z
find?camera=a
find?tag=none
find?tag=any
find?tag=drop
find?tag=odd
find?search=test-01
find?search=TEST-01&split=test
find?lasso=0,0;1,0;1,1
find?lasso=0,0;1,0
find?lasso=0,0;1,0;1
find?sort=label
find?sort=-confidence
find?sort=nothing
find?nothing=1
find?open=confidence
find?with=other-loss&cells=rw
find?with=other-loss&cells=rr&cells=ww
find?with=other-loss&cells=xx
find?with=other-loss&disagree=1
find?with=other-loss&other=0.5..
find?with=other-loss&surer=0.1..
find?with=other-loss&surer=..-0.1
find?cells=rw
find?with=nobody
find?model=other-loss
find?model=nobody
find?stage=nothing
check?model=other-loss&label=1&label=9&nothing=1&sort=x
check?cells=rw&with=other-loss
check?label=1&model=nobody
rows?from=0&count=5
rows?from=0&count=5&sort=-difficulty
rows?from=0&count=5&sort=difficulty
rows?from=0&count=5&sort=confidence&outcome=wrong
rows?from=0&count=5&split=val
rows?from=0&count=5&model=other-loss
rows?from=0&count=5&model=other-loss&with=plain
rows?from=0&count=5&confidence=0.1..0.9&tag=none
rows?from=0&count=5&search=test-01
rows?from=70&count=50
rows?from=76&count=1
rows?from=75&count=1
rows?from=0&count=0
rows?from=0&count=1
rows?from=0&count=100000
rows?from=-1&count=1
rows?from=x&count=1
sample?row=3
sample?row=0&model=other-loss
sample?row=75
sample?row=76
sample?row=40&with=other-loss
neighbours?row=3
neighbours?row=75
parts?row=3
parts?row=20
history?row=3
history?row=3&model=other-loss
history?row=75
compare?with=other-loss
compare?with=other-loss&disagree=rw
compare?with=other-loss&cell=rw
compare?with=other-loss&area=0,0,0.5,0.5
compare?with=other-loss&area=0,0,0.5
compare?with=other-loss&split=test&cell=ww&cell=rr
compare?
locate?id=test-005&split=test
locate?id=test-005&split=test&in=test&sort=confidence
locate?id=test-005&split=test&in=val
locate?id=val-005&split=val&outcome=wrong
locate?id=nobody
locate?id=nobody&split=test
reliability?
reliability?split=test
reliability?outcome=right
reliability?label=1&split=test
reliability?model=other-loss&split=val
confusion?
confusion?split=test
confusion?model=other-loss&outcome=wrong
slices?
slices?split=test
export?format=csv&what=selection
export?format=json&what=selection&outcome=wrong
export?format=csv&what=tags
export?format=labelstudio&label=1&sort=-difficulty
export?format=csv&label=1&sort=-difficulty
export?format=odd
export?what=odd
picture?row=3
picture?row=3&small=1
picture?row=76
picture?row=3&whole=1
picture?row=75&whole=1
views
changes?since=0
changes?since=5
changes?since=-1
map?
map?colour=class
map?colour=difficulty&split=train
map?colour=tag&outcome=wrong
map?colour=odd
map?box=-5,5,-5,5&colour=class
map?box=0,0,0,1
map?box=0,1,1,1
map?box=0,1
map?box=-1000,1000,-1000,1000
map?model=other-loss&split=val
map?label=1&lasso=0,0;9,0;9,9;0,9
find?lasso=-9,-9;9,-9;9,9;-9,9
find?lasso=0,-9;9,-9;9,9;0,9&split=train
rows?from=0&count=500
rows?from=0&count=501
rows?from=2147483648&count=1
rows?from=2147483649&count=1
find?open=label&open=difficulty
find?sort=-label&split=train
export?format=fiftyone&label=1
export?format=parquet&what=selection&label=9
classes?text=SHIRT
classes?text=<
find?c.width=100..
find?c.width=..100&c.camera=studio
find?c.camera=
find?verdict=hard&verdict=typical
find?trust=0.5..&loss=..1
find?prediction=&model=plain
find?label=1&prediction=1&outcome=wrong
sample?row=76&model=plain
neighbours?row=76
compare?with=other-loss&cell=rr&area=0.5,1,0.5,1
compare?with=other-loss&outcome=wrong&confidence=0.5..&label=1
compare?with=plain
compare?with=other-loss&cell=xx
"""
FILE_TARGETS = """
about
find?
find?outcome=wrong
find?label=1
find?confidence=0.5..
find?site=north
find?difficulty=0..1
rows?from=0&count=4
rows?from=0&count=4&sort=-confidence
sample?row=3
neighbours?row=3
parts?row=3
history?row=3
reliability?
confusion?
slices?
compare?with=other
locate?id=5&split=test
export?format=csv&what=selection
picture?row=3
map?
map?colour=class
rows?from=8&count=9
sample?row=0
picture?row=0&whole=1
picture?row=0&small=1
classes?text=1
classes?
"""
UNIT_TARGETS = """
about
find?split=test
rows?from=0&count=3&sort=visit
sample?row=30
reliability?
reliability?split=test
reliability?split=test&outcome=wrong
reliability?split=val&confidence=0.5..
reliability?split=test&c.visit=v1
reliability?split=test&model=other-loss
compare?with=other-loss
compare?with=other-loss&split=test
compare?with=other-loss&split=test&c.visit=v1
compare?with=other-loss&split=test&confidence=0.6..
compare?with=other-loss&split=test&cell=rw
compare?with=other-loss&split=test&area=0,0.5,0.5,1
compare?with=other-loss&split=val&label=1
slices?
slices?split=test
confusion?split=test
"""
PIXEL_TARGETS = """
about
find?outcome=wrong
rows?from=0&count=3
reliability?
reliability?outcome=wrong
confusion?
slices?
sample?row=3
picture?row=3&whole=1
picture?row=3&small=1
"""
LOWERED: dict[str, dict[str, Any]] = {
    "comparison": {"MAX_DOTS": 3, "MAX_PAIRS": 2, "DENSITY": 4},
    "projection": {"MAX_POINTS": 20, "NAMED_CLASSES": 2, "FITTED_ROWS": 30},
    "queries": {"MAX_LISTED_CLASSES": 2, "MAX_LISTED_VALUES": 2, "FIRST_ROWS": 5, "FEW": 3, "MANY": 10, "BINS": 4},
    "reliability": {"MOST_COUNTED": 10, "MAX_CONFUSED": 2, "EXACT_BELOW": 1e9, "RISK_POINTS": 5},
    "session": {"MAX_CLASSES_FOUND": 2, "MAX_ARCHIVED": 9, "MAX_CHOICES": 1},
    "details": {"TOP": 2, "NEIGHBOURS": 2},
}
"""Sizes beyond which an answer is shortened or found another way."""
BEYOND = """
about
find?
find?split=test
find?outcome=wrong&split=test
rows?from=0&count=9&sort=-difficulty
rows?from=3&count=4&sort=confidence&label=1
sample?row=3
sample?row=40
neighbours?row=3
compare?with=other-loss
compare?with=other-loss&cell=rw&cell=ww
reliability?
reliability?split=test&camera=phone
reliability?split=val&model=other-loss
confusion?
confusion?model=other-loss&split=val
map?
map?colour=class
map?box=-2,2,-2,2
classes?
classes?text=s
export?format=labelstudio&label=1
export?format=labelstudio&label=1&split=val
export?format=fiftyone
slices?split=test
locate?id=test-005&split=test&sort=confidence
"""
ACCESS = (
    ("/", {}), ("/assets/explorer.js", {}), ("/assets/none.js", {}), ("/api/nothing", {}), ("/api/alive", {}),
    ("/api/alive", {"host": "other.example"}), ("/api/alive", {"host": "localhost:8765"}),
    ("/api/alive", {"host": "127.0.0.2"}), ("/api/alive", {"host": "[::1]:80"}), ("/api/alive", {"host": "10.0.0.1"}),
    ("/api/alive", {"origin": "http://127.0.0.1"}), ("/api/alive", {"origin": "http://other.example"}),
    ("/api/alive", {"sec_fetch_site": "cross-site"}), ("/", {"sec_fetch_site": "cross-site"}),
    ("/api/alive", {"sec_fetch_site": "same-origin"}), ("/?token=right", {}), ("/?token=right&label=1", {}),
    ("/?token=right", {"sec_fetch_site": "cross-site"}), ("/?token=wrong", {}), ("/?token=", {}),
    ("/api/alive", {"cookie": "confide_token_8765=right"}), ("/api/alive", {"cookie": "confide_token_8765=wrong"}),
    ("/api/alive", {"cookie": 'prefs={"a":"b"}; confide_token_8765=right'}),
    ("/api/alive", {"cookie": "confide_token_8766=right"}),
)  # fmt: skip
BODIES = (b"{}", b"[]", b"x", b"", b'{"action": "drop"}', b'{"note": "\\ud800"}', b"[" * 5000, b" " * (1 << 17),
          b" " * ((1 << 17) - 2) + b"{}", b" " * ((1 << 17) - 1) + b"{}")  # fmt: skip
CHANGES = (
    ("PUT", "tag?row=3", {"action": "drop"}),
    ("PUT", "tag?row=4", {"action": "relabel", "new_label": 2, "note": "seen"}),
    ("PUT", "tag?row=5", {"action": "relabel", "new_label": 9}),
    ("PUT", "tag?row=5", {"action": "odd"}),
    ("PUT", "tag?row=5", {"note": "only"}),
    ("PUT", "tag?row=99", {"action": "drop"}),
    ("PATCH", "tag", {"split": "test", "id": "test-003", "action": "keep"}),
    ("PATCH", "tag", {"split": "test", "id": "nobody", "action": "keep"}),
    ("POST", "tags", {"rows": [], "action": "keep"}),
    ("POST", "tags", {"rows": [0, 75], "note": "both"}),
    ("POST", "tags", {"rows": [1, 2, 3], "action": "keep"}),
    ("POST", "tags?label=1&split=val", {"all": True, "action": "drop"}),
    ("POST", "tags", {"rows": [1, 99], "action": "keep"}),
    ("POST", "tags", {"rows": "x", "action": "keep"}),
    ("GET", "find?tag=any", None),
    ("GET", "find?tag=drop", None),
    ("GET", "find?tag=note", None),
    ("GET", "find?tag=none&split=val", None),
    ("GET", "rows?from=0&count=8&tag=any", None),
    ("GET", "sample?row=4", None),
    ("GET", "changes?since=0", None),
    ("GET", "changes?since=2", None),
    ("GET", "export?format=csv&what=tags", None),
    ("POST", "undo", {"undo": "nobody"}),
    ("PUT", "view", {"name": "mine", "query": "label=1"}),
    ("PUT", "view", {"name": "", "query": "label=1"}),
    ("GET", "views", None),
    ("PUT", "tag?row=3", {"action": None, "note": ""}),
    ("GET", "find?tag=any", None),
)


def explorer_entries() -> Iterator[tuple[str, Callable[[], Any]]]:
    for target in RUN_TARGETS.strip().splitlines():
        yield target, partial(_asked, "run", target)
    for source in ("predictions", "scores", "pairs", "unlabelled"):
        for target in FILE_TARGETS.strip().splitlines():
            yield f"{source}: {target}", partial(_asked, source, target)
    for source in ("texts", "pictures", "featured"):
        for target in FILE_TARGETS.strip().splitlines():
            yield f"{source}: {target}", partial(_asked, source, target)
    for source, targets in (("visited", UNIT_TARGETS), ("pixels", PIXEL_TARGETS)):
        for target in targets.strip().splitlines():
            yield f"{source}: {target}", partial(_asked, source, target)
    for target in ("find?tag=any", "find?tag=none", "rows?from=0&count=5&tag=any", "export?what=tags"):
        yield f"tagged before: {target}", partial(_asked, "tagged before", target)
    for row in range(5):
        yield f"pixels: {row}", partial(_map_of, row)
    for target in BEYOND.strip().splitlines():
        yield f"beyond: {target}", partial(_asked_lowered, target)
    yield "the report", lambda: [_asked("reported", "report")[key] for key in ("status", "type")]
    yield "who may ask", _let_in
    yield "bodies", _bodies
    yield "planes", _planes
    yield "sums", _sums
    yield "addresses", _addresses
    yield "changes one after the other", _changed


def _asked(source: str, target: str, method: str = "GET", body: Any = None) -> Any:
    app, kept, _ = explorer_app(source)
    sent = b"" if body is None else json.dumps(body).encode()
    reply = ask(app, f"/api/{target}", method, sent, x_confide="1")
    kind = reply.headers.get("content-type", "")
    if kind.startswith("image/"):
        return {"status": reply.status, "type": kind}
    content = reply.content
    if content[:2] == b"PK":
        with ZipFile(BytesIO(content)) as archive:
            texts = [archive.read(name) for name in archive.namelist() if name.endswith((".json", ".xml", ".csv"))]
            content = b"\n".join([" ".join(archive.namelist()).encode(), *texts])
    text = content.decode("utf-8", "replace").replace(str(Path(kept.name).resolve()), "FOLDER")
    text = re.sub(
        r"v?\d+\.\d+\.\d+[\w.+-]*|\d{4}-\d\d-\d\d[T ]?[\d:+Z.]*|\"(etag|token|version|stamp|undo)\": ?\"[^\"]*\"",
        "",
        text,
    )
    # Rounded, so that the last digits, which hang on the processor, move neither its length nor where it is cut.
    text = re.sub(r"-?\d+\.\d{6,}(?:[eE][-+]?\d+)?", lambda number: f"{float(number[0]):.5g}", text)
    return {"status": reply.status, "type": kind, "size": len(text), "text": text[:6000], "end": text[6000:][-800:]}


def _asked_lowered(target: str) -> Any:
    with ExitStack() as stack:
        for module, limits in LOWERED.items():
            for name, value in limits.items():
                stack.enter_context(patch.object(import_module(f"confide.explorer.{module}"), name, value))
        return _asked("run beyond", target)


def _map_of(row: int) -> Any:
    """The maps of a pixel's image, or why there are none; the images that are kept at once are two."""
    with patch.object(pixels, "MOST_IMAGES", 1):
        replies = [ask(explorer_app("pixels")[0], f"/api/picture?row={k}") for k in (row, 30, row)]
    reply, other, again = replies
    if reply.status != 200:
        return [reply.status, reply.content.decode()]
    picture = np.asarray(Image.open(BytesIO(reply.content)).convert("RGB")).astype(int)
    return [list(picture.shape), picture.mean((0, 1)).round(1).tolist(), again.content == reply.content, other.status]


def _let_in() -> Any:
    """Who is answered how, without a token, with one, and by another address."""
    explorer = explorer_app("run")[2]
    told = {}
    for host, token in (("127.0.0.1", None), ("127.0.0.1", "right"), ("10.0.0.1", "right"), ("name.example", "right")):
        app = create_app(explorer, host, token)
        for target, headers in ACCESS:
            for method in ("GET", "POST") if target == "/api/alive" and not headers else ("GET",):
                reply = ask(app, target, method, **headers)
                own = {k: v for k, v in reply.headers.items() if k not in ("content-length", "content-type")}
                text = reply.content.decode()[:60] if reply.status != 200 else ""
                told[f"{host} {token} {method} {target} {headers}"] = [reply.status, text, own]
    return told


def _bodies() -> Any:
    app = explorer_app("changed")[0]
    replies = [ask(app, "/api/tag?row=3", "PUT", body, x_confide="1") for body in BODIES]
    declared = [
        ask(app, "/api/tag?row=3", "PUT", b"{}", x_confide="1", content_length=str(n)) for n in (1 << 17, 131073)
    ]
    return [[reply.status, _still(reply.content.decode())] for reply in (*replies, *declared)]


def _still(text: str) -> str:
    return re.sub(r"\d{4}-\d\d-\d\d[T ]?[\d:+Z.]*", "", text)[:300]


def _planes() -> Any:
    """Which kept maps are read: those of these features, whole."""
    plane, told = np.arange(8, dtype=np.float32).reshape(4, 2), []
    with TemporaryDirectory() as name:
        path = Path(name) / "map.npz"
        odd = plane.copy()
        odd[0, 0] = np.inf
        unknown = plane.copy()
        unknown[0, 0] = np.nan
        for own, key, n in (
            (plane, "key", 4), (plane, "other", 4), (plane, "key", 3), (plane.astype(float), "key", 4), (odd, "key", 4),
            (unknown, "key", 4), (plane[:, :1], "key", 4),
        ):  # fmt: skip
            projection._keep_plane(path, key, own)
            told.append(projection._read_plane(path, "key", n) is not None)
        path.write_bytes(b"x")
        told.append(projection._read_plane(path, "key", 4) is not None)
        projection._keep_plane(Path(name) / "map.npz" / "below", "key", plane)
    boxes = [asdict(projection._ends(own, 0.001)) for own in (plane, plane[:1], plane * np.nan)]
    cells = np.array([0, 0, 1, 1, 1])
    values = np.array([1.0, 2.0, 1.0, 0.0, np.nan])
    means = [projection._means(cells, values, colour)[:3].tolist() for colour in ("gap", "class")]
    return [told, boxes, means]


def _sums() -> Any:
    """Verdicts on rows from sums alone: many rows, few errors, one row, all right."""
    told = []
    cases = (
        (1, 1.0, 0.9), (1, 0.0, 0.9), (40, 0.9, 0.9), (40, 0.5, 0.9), (40, 1.0, 0.6), (400, 0.99, 0.999),
        (400, 1.0, 0.999), (4000, 0.9, 0.9), (4000, 0.88, 0.9), (4000, 0.92, 0.9), (40, 1.0, 1.0),
    )  # fmt: skip
    for n, rate, sure in cases:
        right = np.arange(n) < round(rate * n)
        own = np.full(n, sure)
        sums = reliability.ConfidenceSums.of(own, reliability.confidence_cells(own, right))
        for few in (None, own):
            result = reliability.reliability_of(sums, (), few)
            told.append({k: v for k, v in asdict(result).items() if k not in ("bins", "risk", "by_label")})
        told.append([asdict(b) for b in result.bins])
        told.append([list(r) for r in result.risk[:3]])
    spread = np.linspace(0.02, 1.0, 60)
    right = np.arange(60) % 3 > 0
    whole = reliability.ConfidenceSums.of(spread, reliability.confidence_cells(spread, right))
    some = reliability.ConfidenceSums.of(spread[:20], reliability.confidence_cells(spread[:20], right[:20]))
    told.append(asdict(reliability.reliability_of(whole - some, ("label",))))
    for variance in (0.0, 1e-6, 0.003, 0.1, float("inf")):
        own = reliability.reliability_of(whole, (), spread=reliability.Spread(variance, 7.0, 8.0))
        told.append([asdict(own)[k] for k in ("low", "high", "chance", "p_value", "verdict")])
        told.append([asdict(b) for b in own.bins[:3]])
    for units in (np.zeros(6, int), np.arange(6) // 2, np.arange(6)):
        told.append(asdict(reliability._unit_spread(np.array([0.1, -0.2, 0.3, 0.3, -0.1, 0.0]), units)))
    grid = comparison._density(np.array([0.0, 0.5, 1.0, 0.99]), np.array([1.0, 0.5, 0.0, 0.01]), np.array([0, 1, 2, 2]))
    told.append([list(g) for g in grid])
    rights = [np.array([1.0, 0.0, 0.0, 1.0]), np.array([0.0, 1.0, 0.0, 1.0])]
    changed = comparison._gap_change([np.array([0.9, 0.8, 0.6, 0.5]), np.array([1.0, 0.7, 0.7, 0.4])], rights)
    told.append([asdict(changed), comparison._gap_change([np.ones(1)] * 2, [np.ones(1)] * 2)])
    return dict(enumerate(told))


def _addresses() -> Any:
    named = [
        launch.address_of(host, 80, token) for host in ("127.0.0.1", "::1", "0.0.0.0", "::") for token in (None, "t")
    ]
    shown = [address.replace(socket.gethostname(), "HOST") for address in named]
    refused = [_or_line(lambda port=port: launch.bind("127.0.0.1", port).close() or "bound") for port in (-1, 65536, 0)]
    local = [is_local(host) for host in ("localhost", "127.0.0.1", "127.9.9.9", "::1", "0.0.0.0", "10.0.0.1", "name")]
    return [shown, refused, local]


def _changed() -> Any:
    explorer_app.cache_clear()
    try:
        return {
            f"{k} {method} {target}": _asked("tagged", target, method, body)
            for k, (method, target, body) in enumerate(CHANGES)
        }
    finally:
        explorer_app.cache_clear()
