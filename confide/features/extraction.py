"""`extract`: features of a split by the word of an extractor, in memory or to shards that a stopped run goes on
from.

A factory `(name, *, options) -> Extractor` is registered per word; words with a colon (`timm:resnet50`) pass what
stands behind it as the name. Those that need no pre-trained weights stand here: pixels, and the user's own network.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.utils.data import DataLoader, Dataset as TorchDataset

from confide.checks import InputError, check_options, check_range, did_you_mean
from confide.features.images import Preprocess, as_image_array, augmented
from confide.files import disk, formats
from confide.files.shards import (
    SHARDS_MANIFEST,
    ExtractionPlan,
    shard_path,
    write_manifest,
    write_samples,
    write_shard,
)
from confide.models import load_network
from confide.models.device import Device
from confide.models.trained import trained_file
from confide.progress import Progress
from confide.records import Dataset, Features, Split
from confide.registry import Method, OptionSpec, Registry
from confide.types import Options

# ---- Words -> extractors ----


@dataclass(frozen=True, kw_only=True)
class ExtractorSpec(OptionSpec):
    """What is said of an extractor: `kind` of inputs, image, text or any; `text`: it encodes texts too."""

    kind: str
    text: bool = False


EXTRACTORS = Registry("extractor", ExtractorSpec)


@dataclass(frozen=True, eq=False)
class Extractor:
    """How one input is prepared (in decoding workers) and how a batch of prepared inputs becomes rows `n d`."""

    name: str
    kind: str  # "image", "text" or "rows": what the inputs are
    prepare: Callable[[Any], Any]
    encode: Callable[[Any], Tensor]
    collate: Callable[[list[Any]], Any] = torch.stack
    module: nn.Module | None = None
    encode_text: Callable[[list[str]], Tensor] | None = None
    rows_of: Callable[[Split], NDArray[Any]] | None = None
    """Where a whole split is turned into rows at once, instead of prepare and encode."""


def split_word(word: str) -> tuple[Method[ExtractorSpec], str]:
    """The registered method of a word and what stands behind its colon."""
    head, _, name = word.partition(":")
    known = {m.word: m for m in EXTRACTORS}
    if f"{head}:" in known and name:
        return known[f"{head}:"], name
    if word in known:
        return known[word], ""
    shown = [w + "<name>" if w.endswith(":") else w for w in known]
    raise InputError(f"no extractor named '{word}'; {did_you_mean(word, shown)}")


def create(word: str, **options: Any) -> Extractor:
    """The extractor of a word.

    Args:
        word: of an extractor, as `names` lists them.
        options: of the extractor, by name.

    Returns:
        The `Extractor`, which `extract` takes in the place of its word.

    Raises:
        InputError: for an unknown word.
        MissingExtra: without the package that it needs.

    Example:
        >>> from confide import features
        >>> features.create("pixels", size=8).name
        'pixels8'
    """
    method, name = split_word(word)
    extractor: Extractor = method.function(name, **method.checked(options))
    return extractor


def usual(dataset: Dataset, split: str = "train") -> str:
    """The extractor's word where none was chosen: what the data carries, else one that suits its kind.

    Args:
        dataset: whose inputs are to become features.
        split: where a column `features` is looked for.

    Returns:
        `cached`, or a word by the kind of the data.

    Example:
        >>> from confide import data, features
        >>> features.usual(data.load_dataset("fashion-sample"))
        'cached'
    """
    if "features" in dataset.split(split).columns:
        return "cached"
    return {"text": "minilm", "rows": "pixels"}.get(dataset.kind, "efficientnet_lite0")


def names() -> tuple[str, ...]:
    """All words; those that end in a colon take a name behind it.

    Returns:
        The words that `create` and `extract` take.

    Example:
        >>> from confide import features
        >>> "pixels" in features.names(), "timm:" in features.names()
        (True, True)
    """
    return EXTRACTORS.names()


# ---- Pixels ----

MOST_PIXELS, POOLED = 3072, 16


@EXTRACTORS.add("pixels", paper="baseline: no model", kind="image", ranges={"size": (0, 1 << 14)})
def pixels(name: str = "", *, size: int | None = None) -> Extractor:
    """(pixel values) / 255 as one row per image; rows of numbers pass as they are.

    When: rows of numbers, or as the baseline.
    When not: pictures: distances of pixels say little.

    Args:
        name: not used; this word takes no name.
        size: average-pool every image to size x size first; 0 keeps all pixels, None all up to 3,072 numbers and pools
            larger images to 16 x 16, because the time of a covariance grows with the cube of their number.

    Returns:
        An `Extractor` for `extract`.

    Example:
        >>> import numpy as np
        >>> from confide import features
        >>> features.create("pixels").prepare(np.full((1, 2, 2), 255, dtype=np.uint8))
        tensor([1., 1., 1., 1.])
    """

    def prepare(item: Any) -> Tensor:
        array = np.asarray(item)
        if array.ndim <= 1 and array.dtype.kind in "fiub":
            return torch.from_numpy(array.astype(np.float32)).reshape(-1)
        image = torch.from_numpy(as_image_array(item).astype(np.float32)) / 255
        pooled = POOLED if size is None and image.numel() > MOST_PIXELS else size
        if pooled:
            image = torch.nn.functional.adaptive_avg_pool2d(image, pooled)
        return image.reshape(-1)

    return Extractor("pixels" if not size else f"pixels{size}", "image", prepare, lambda batch: batch)


# ---- Penultimate features of the user's own model: a checkpoint, or any network in memory ----


@EXTRACTORS.add("model:", paper="penultimate layer of the user's own model", kind="any")
def model(name: str) -> Extractor:
    """Penultimate features of a trained checkpoint, prepared as in its training: `model:runs/mine`.

    When: a network trained on the task is there.
    When not: a second opinion is wanted: it is the same opinion.

    Args:
        name: path of a trained model; in a word it stands after the colon.

    Returns:
        An `Extractor` for `extract`.

    Raises:
        InputError: where there is no such model.

    Example:
        >>> from confide import features
        >>> features.extract("model:runs/mine", dataset, "val")  # doctest: +SKIP
    """
    path = Path(name)
    if not path.exists():
        raise InputError(f"features 'model:{name}' need a checkpoint, but {path} does not exist; check the path")
    return Extractor(f"model:{name}", "any", _identity, _identity, rows_of=load_network(path).penultimate_rows)


def _identity(item: Any) -> Any:
    return item


def from_module(
    network: nn.Module, prepare: Callable[[Any], Tensor], *, layer: str | None = None, name: str = "module"
) -> Extractor:
    """Features of any network in memory: the input of its last linear layer, or the output of a named layer.

    Args:
        network: any network; it is used as it is, in eval mode while rows are made.
        name: how the features are called in files and reports.
        prepare: one input -> tensor; batches are stacked.
        layer: dotted name of the module whose output is wanted; None takes what enters the last nn.Linear.

    Returns:
        An `Extractor` for `extract`.

    Raises:
        InputError: for a layer that is not there, or a network without a linear layer.

    Example:
        >>> import numpy as np, torch
        >>> from confide import data, features
        >>> network = torch.nn.Sequential(torch.nn.Linear(4, 3), torch.nn.ReLU(), torch.nn.Linear(3, 2))
        >>> extractor = features.from_module(network, torch.as_tensor)
        >>> split = data.Split(np.ones((5, 4), dtype=np.float32), np.zeros(5, dtype=int), np.arange(5))
        >>> features.extract(extractor, split, device="cpu").values.shape
        (5, 3)
    """
    modules = dict(network.named_modules())
    linear = [module for module in modules.values() if isinstance(module, nn.Linear)]
    if layer is not None and layer not in modules:
        raise InputError(f"layer must be a module of the network, got '{layer}'; known: {', '.join(modules)[:200]}")
    if layer is None and not linear:
        raise InputError("the network has no linear layer to stop before; name the layer to read")
    target = modules[layer] if layer is not None else linear[-1]

    def encode(batch: Tensor) -> Tensor:
        seen: list[Tensor] = []
        if layer is None:
            handle = target.register_forward_pre_hook(lambda _, inputs: seen.append(inputs[0]))
        else:
            handle = target.register_forward_hook(lambda _, __, output: seen.append(output))
        try:
            network(batch)
        finally:
            handle.remove()
        rows = seen[-1]
        return rows.mean(dim=tuple(range(2, rows.ndim))) if rows.ndim > 2 else rows

    return Extractor(name, "any", prepare, encode, torch.stack, network)


# ---- Batched extraction over a split: in memory, or to memory-mapped shards that a stopped run goes on from ----


@dataclass(frozen=True)
class ExtractionSettings:
    """How an extraction runs; but for `augment`, none of it changes the numbers beyond the dtype's rounding."""

    batch_size: int
    device: str | None
    workers: int
    amp: bool | None
    shard_rows: int
    dtype: str
    augment: int | None


def extract(
    word: str | Extractor,
    dataset: Dataset | Split,
    split: str = "train",
    *,
    out: str | Path | None = None,
    batch_size: int = 64,
    device: str | None = None,
    workers: int = 0,
    amp: bool | None = None,
    shard_rows: int = 8192,
    dtype: str = "float32",
    augment: int | None = None,
    **options: Any,
) -> Features:
    """Features of one split by an extractor's word (or an Extractor); `cached` takes those the data carries.

    Args:
        word: of an extractor, or an `Extractor`; `cached` takes the column `features` of the data.
        dataset: a dataset that has the split, or a split of its own, then called `split`.
        split: which one.
        batch_size: inputs at once.
        options: of the extractor, by name.
        out: folder for memory-mapped shards; a stopped extraction into it goes on at the first missing shard.
        device: "cpu", "cuda"; None takes a GPU where there is one.
        workers: processes that decode and prepare inputs.
        amp: half precision products on a GPU; None switches them on there.
        shard_rows: rows per shard file.
        dtype: "float32" or "float16" of the rows.
        augment: seed of a random crop and flip per image (runs for fitting `rmd` on augmentations); None = plain.

    Returns:
        `Features`: rows `n d` with the ids and labels of the split, memory-mapped where `out` is given.

    Raises:
        InputError: for an unknown word, an empty split, or a folder that holds another extraction.

    Example:
        >>> import numpy as np
        >>> from confide import data, features
        >>> images = np.zeros((6, 1, 4, 4), dtype=np.uint8)
        >>> split = data.Split(images, np.arange(6) % 2, np.arange(6))
        >>> features.extract("pixels", split).values.shape
        (6, 16)
    """
    part = dataset.split(split) if isinstance(dataset, Dataset) else dataset
    if word == "cached" or isinstance(word, Extractor):
        check_options(word if isinstance(word, str) else word.name, "extractor", options, ())
    if word == "cached":
        if augment is not None:
            raise InputError("cached features cannot be augmented; choose an extractor for augmentation runs")
        return cached(part, split)
    if isinstance(word, str):
        split_word(word)
    check_range(batch_size, "batch_size", 1)
    check_range(shard_rows, "shard_rows", 1)
    check_range(workers, "workers", 0, 1024)
    if device is not None:
        Device.of(device)
    if dtype not in ("float32", "float16"):
        raise InputError(f"dtype must be 'float32' or 'float16', got {dtype!r}")
    settings = ExtractionSettings(batch_size, device, workers, amp, shard_rows, dtype, augment)
    if not len(part):
        raise InputError(f"split '{split}' must have samples, got none")
    if out is None:
        extractor = _extractor_of(word, options)
        with Progress(f"features {extractor.name}", len(part)) as progress:
            rows = np.concatenate(list(_encoded(extractor, part, np.arange(len(part)), settings, progress)))
        name = word if isinstance(word, str) else extractor.name
        return Features(rows.astype(dtype), part.labels, part.ids, name, split, options)
    return _to_shards(word, part, split, Path(out), settings, options)


def cached(part: Split, split: str) -> Features:
    """The features a split carries in its column `features`."""
    if "features" not in part.columns:
        raise InputError(
            "features 'cached' need data that carries a column 'features', this has none; "
            "choose an extractor, such as 'efficientnet_lite0' or 'pixels'"
        )
    return Features(part.columns["features"], part.labels, part.ids, "cached", split)


def _extractor_of(word: str | Extractor, options: Options) -> Extractor:
    return word if isinstance(word, Extractor) else create(word, **options)


def _to_shards(
    word: str | Extractor, part: Split, split: str, folder: Path, settings: ExtractionSettings, options: Options
) -> Features:
    plan = ExtractionPlan(
        extractor=word if isinstance(word, str) else word.name,
        options=formats.plain(options),
        split=split,
        n=len(part),
        inputs=replace(part, labels=np.zeros_like(part.labels)).fingerprint,
        weights=weights_digest(word),
        shard_rows=settings.shard_rows,
        dtype=settings.dtype,
        augment=settings.augment,
    )
    with disk.locked(folder):
        return _write_shards(word, part, folder, settings, options, plan)


def _write_shards(
    word: str | Extractor,
    part: Split,
    folder: Path,
    settings: ExtractionSettings,
    options: Options,
    plan: ExtractionPlan,
) -> Features:
    _check_same(folder, plan)
    disk.remove_leftovers([folder])
    todo = [k for k in range(-(-len(part) // settings.shard_rows)) if not _is_done(folder, k, plan)]
    if todo or not (folder / SHARDS_MANIFEST).exists():
        extractor = _extractor_of(word, options)
        dim = 0
        with Progress(f"features {extractor.name}", len(part)) as progress:
            progress.done = len(part) - sum(plan.shard(k).size for k in todo)
            for k in todo:
                rows = plan.shard(k)
                block = np.concatenate(list(_encoded(extractor, part, rows, settings, progress)))
                dim = block.shape[1]
                write_shard(shard_path(folder, k), block.astype(settings.dtype))
        dim = dim or np.load(shard_path(folder, 0), mmap_mode="r", allow_pickle=False).shape[1]
        write_manifest(folder, plan, dim, part.labels, part.ids)
    extracted = Features.load(folder)
    if not np.array_equal(extracted.labels, part.labels):
        write_samples(folder, part.labels, part.ids)
        extracted = replace(extracted, labels=part.labels)
    return extracted


def _check_same(folder: Path, plan: ExtractionPlan) -> None:
    """A folder belongs to one extraction; another one must not be mixed into it, nor taken for it."""
    file = folder / "plan.json"
    # A plan without rows is what a failed start leaves, such as one without the extractor's package.
    if file.exists() and any(folder.glob("rows-*.npy")):
        earlier = formats.read_json(file)
        for name, value in vars(plan).items():
            if name not in earlier or earlier[name] != value:
                there = f"{earlier[name]!r} there and" if name in earlier else "not known there and"
                raise InputError(
                    f"{folder} holds another extraction: {name} is {there} {value!r} here; "
                    "choose another folder (--cache on the command line), or remove this one"
                )
    else:
        formats.write_json(file, vars(plan))


def weights_digest(word: str | Extractor) -> str:
    """A digest of the weights of the user's own network, in memory or behind `model:`; else an empty text."""
    if isinstance(word, str):
        head, _, path = word.partition(":")
        return formats.checksum(trained_file(path))[:16] if head == "model" and Path(path).exists() else ""
    if word.module is None:
        return ""
    digest = hashlib.sha256()
    for name, values in word.module.state_dict().items():
        digest.update(name.encode())
        digest.update(values.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy().data)
    return digest.hexdigest()[:16]


def _is_done(folder: Path, shard: int, plan: ExtractionPlan) -> bool:
    path = shard_path(folder, shard)
    if not path.exists():
        return False
    try:
        rows = np.load(path, mmap_mode="r", allow_pickle=False)
    except (ValueError, OSError, EOFError):
        return False
    return bool(rows.ndim == 2 and len(rows) == plan.shard(shard).size)


class _Prepared(TorchDataset[Any]):
    """Inputs prepared one by one; the error of a bad input names its id."""

    def __init__(self, extractor: Extractor, part: Split, rows: NDArray[np.intp], augment: int | None) -> None:
        self.extractor, self.part, self.rows, self.augment = extractor, part, rows, augment

    def __len__(self) -> int:
        return len(self.rows)

    def __getitem__(self, place: int) -> Any:
        row = int(self.rows[place])
        item = self.part.inputs[row]
        try:
            if self.augment is not None:
                item = augmented(item, self.augment, row)
            return self.extractor.prepare(item)
        except InputError as error:
            # DataLoader workers rebuild errors from their message, so one line is all that may travel.
            raise InputError(f"{error} (sample {self.part.ids[row]!r}); drop it from the data") from None


def _encoded(
    extractor: Extractor, part: Split, rows: NDArray[np.intp], settings: ExtractionSettings, progress: Progress
) -> Iterator[NDArray[Any]]:
    if extractor.rows_of is not None:
        values = extractor.rows_of(part.take(rows))
        if values.ndim != 2 or len(values) != len(rows):
            raise InputError(f"extractor '{extractor.name}' must give {len(rows)} rows, got shape {np.shape(values)}")
        yield values
        return
    device = torch.device(settings.device or ("cuda" if torch.cuda.is_available() else "cpu"))
    half = device.type == "cuda" if settings.amp is None else settings.amp
    if extractor.module is not None:
        extractor.module.to(device).eval()
        if device.type == "cuda":
            # Half-precision convolutions want the channels last; other layers do not mind.
            extractor.module.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    with torch.inference_mode():
        for batch in _prepared(extractor, part, rows, settings, device):
            with torch.autocast(device.type, enabled=half):
                encoded = extractor.encode(batch)
            rows_out = encoded.float().cpu().numpy()
            if not np.isfinite(rows_out).all():
                raise InputError(f"extractor '{extractor.name}' gave NaN or infinity; check its weights, or amp=False")
            yield rows_out
            progress.step(len(rows_out))


def _prepared(
    extractor: Extractor, part: Split, rows: NDArray[np.intp], settings: ExtractionSettings, device: torch.device
) -> Iterator[Any]:
    """Prepared batches on the device: one by one in workers, or, off the CPU, whole arrays resized where they go."""
    prepare, augment = extractor.prepare, settings.augment
    if device.type != "cpu" and augment is None and isinstance(prepare, Preprocess) and _is_array(part, prepare):
        for start in range(0, len(rows), settings.batch_size):
            levels = np.ascontiguousarray(part.inputs[rows[start : start + settings.batch_size]])
            yield prepare.batch(torch.from_numpy(levels).to(device)).contiguous(memory_format=torch.channels_last)
        return
    prepared = _Prepared(extractor, part, rows, augment)
    for batch in DataLoader(prepared, settings.batch_size, num_workers=settings.workers, collate_fn=extractor.collate):
        yield _to_device(batch, device)


def _is_array(part: Split, prepare: Preprocess) -> bool:
    """Images of one size in one array: uint8 `n c h w`."""
    inputs = part.inputs
    is_images = isinstance(inputs, np.ndarray) and inputs.dtype == np.uint8 and inputs.ndim == 4
    return is_images and inputs.shape[1] in (1, 3) and prepare.takes_batches()


def _to_device(batch: Any, device: torch.device) -> Any:
    if isinstance(batch, dict):
        return {name: value.to(device) for name, value in batch.items()}
    return batch.to(device) if hasattr(batch, "to") else batch
