"""Datasets known by name, in the layout their authors publish: CIFAR, MNIST, SVHN, Tiny-ImageNet, CLINC150, and the
sample of Fashion-MNIST inside the package.
"""

from __future__ import annotations

import gzip
import hashlib
import http.client
import tarfile
import urllib.error
import urllib.request
import zlib
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from confide.checks import InputError, check_choice
from confide.data.arrays import npz
from confide.data.base import DATASETS, SPLITS, RawDataset, RawSplit, recognises
from confide.data.folder import image_part, list_images
from confide.data.images import EncodedImages, ImageOptions, read_images
from confide.files.disk import atomic
from confide.files.formats import read_json
from confide.progress import Progress
from confide.records import Provenance

# ---- Archives of official sites: fetched with a checksum, unpacked file by file ----


@dataclass(frozen=True)
class Archive:
    """A tar archive: where it is published, its MD5 as published there, and the folder and files within."""

    url: str
    md5: str
    folder: str
    files: tuple[str, ...]

    @property
    def name(self) -> str:
        return self.url.rsplit("/", 1)[-1]


def archive_folder(archive: Archive, data_folder: Path, download: bool) -> Path:
    """The folder with the archive's files: there already, or from the archive there, or downloaded."""
    target = data_folder / archive.folder
    if all((target / name).exists() for name in archive.files):
        return target
    packed = data_folder / archive.name
    if not packed.exists():
        if not download:
            raise InputError(f"{target} must hold {archive.files[0]} and others, but it does not; {_by_hand(archive)}")
        _fetch(archive, packed)
    _unpack(packed, archive.files, target)
    return target


def folder_with(files: Iterable[str], where: Path, places: Sequence[str]) -> Path | None:
    """The first of the places below a folder that holds one of the files."""
    names = tuple(files)
    return next((where / place for place in places if any((where / place / name).is_file() for name in names)), None)


def _by_hand(archive: Archive) -> str:
    return f"put {archive.name} from {archive.url} there, or say where it is by folder= or CONFIDE_DATA"


def _fetch(archive: Archive, target: Path) -> None:
    digest = hashlib.md5(usedforsecurity=False)
    try:
        with (
            urllib.request.urlopen(archive.url, timeout=30) as response,
            atomic(target) as temporary,
            open(temporary, "wb") as file,
            Progress(f"download {archive.name}", int(response.headers.get("Content-Length") or 0)) as progress,
        ):
            while block := response.read(1 << 20):
                file.write(block)
                digest.update(block)
                progress.step(len(block))
            if digest.hexdigest() != archive.md5:
                raise InputError(
                    f"{archive.url} must have the checksum {archive.md5}, got {digest.hexdigest()}; "
                    "it was not kept: try again, or get it by another way"
                )
    except (urllib.error.URLError, http.client.HTTPException, TimeoutError, ConnectionError) as error:
        if isinstance(error, urllib.error.HTTPError):
            error.close()
        why = " ".join(str(getattr(error, "reason", error)).split())
        raise InputError(
            f"{archive.folder} is not in {target.parent}, and could not be downloaded ({why}); {_by_hand(archive)}"
        ) from None


def _unpack(packed: Path, files: Collection[str], target: Path) -> None:
    """Only files known by name are taken, under their bare name: an archive cannot write anywhere else."""
    missing = set(files)
    try:
        with tarfile.open(packed) as archive:
            for member in archive:
                name = member.name.rsplit("/", 1)[-1]
                source = archive.extractfile(member) if name in missing and member.isfile() else None
                if source is not None:
                    with atomic(target / name) as temporary:
                        temporary.write_bytes(source.read())
                    missing.discard(name)
    except (tarfile.TarError, EOFError, zlib.error) as error:
        raise InputError(f"{packed} must be a whole archive, but it cannot be read ({error}); delete it") from None
    if missing:
        raise InputError(f"{packed} must hold {', '.join(sorted(missing))}, but it does not; delete it and try again")


# ---- Records of the official CIFAR binaries: label bytes, then 3 x 32 x 32 pixels ----

SIDE = 32
PIXELS = 3 * SIDE * SIDE


def read_records(files: Sequence[Path], label_bytes: int) -> tuple[NDArray[np.uint8], NDArray[np.int64]]:
    """Images `n 3 32 32` and labels `n label_bytes` of these files, in the original order."""
    length = label_bytes + PIXELS
    blocks = []
    for file in files:
        content = np.fromfile(file, dtype=np.uint8)
        if len(content) == 0 or len(content) % length:
            raise InputError(
                f"{file} must hold records of {length} bytes, got {len(content)} bytes; it is cut short: delete it"
            )
        blocks.append(content.reshape(-1, length))
    records = np.concatenate(blocks)
    images = np.ascontiguousarray(records[:, label_bytes:]).reshape(-1, 3, SIDE, SIDE)
    return images, records[:, :label_bytes].astype(np.int64)


def read_names(file: Path) -> tuple[str, ...]:
    """Class names, one per line."""
    return tuple(line.strip() for line in file.read_text(encoding="utf-8").splitlines() if line.strip())


# ---- CIFAR-10 from its official binary archive ----

TRAIN = tuple(f"data_batch_{i}.bin" for i in range(1, 6))
CIFAR10_ARCHIVE = Archive(
    "https://www.cs.toronto.edu/~kriz/cifar-10-binary.tar.gz",
    "c32a1d4ab5d03f1284b67883e8d87530",
    "cifar-10-batches-bin",
    (*TRAIN, "test_batch.bin", "batches.meta.txt"),
)


@DATASETS.add("cifar10", paper="Krizhevsky, 2009, Learning multiple layers of features from tiny images", takes="word")
def cifar10(where: Path, *, download: bool = True) -> RawDataset:
    """CIFAR-10, 50,000 / 10,000 colour images of 32 x 32 in 10 classes; ids follow the original order.

    When: small photographs of ten classes, the field's usual test.
    When not: conclusions shall hold for large images.

    Args:
        where: the data folder, or the folder with the files.
        download: fetch the archive when it is not in the data folder.

    Returns:
        The parts as the source holds them; `load_dataset` makes a checked `Dataset` of them.

    Raises:
        InputError: where the files are not there, or not whole.

    Example:
        >>> from confide import data
        >>> data.load_dataset("cifar10")  # doctest: +SKIP
    """
    folder = where if (where / TRAIN[0]).exists() else archive_folder(CIFAR10_ARCHIVE, where, download)
    parts = {}
    for split, names in (("train", TRAIN), ("test", ("test_batch.bin",))):
        images, labels = read_records([folder / name for name in names], label_bytes=1)
        parts[split] = RawSplit(images, labels[:, 0])
    return RawDataset(parts, read_names(folder / "batches.meta.txt"), "cifar10", Provenance(place=str(folder)))


recognises("cifar10", lambda path: folder_with(TRAIN[:1], path, ("", CIFAR10_ARCHIVE.folder)) is not None)


# ---- CIFAR-100 from its official binary archive ----

FINE_NAMES = "fine_label_names.txt"
CIFAR100_ARCHIVE = Archive(
    "https://www.cs.toronto.edu/~kriz/cifar-100-binary.tar.gz",
    "03b5dce01913d631647c71ecec9e9cb8",
    "cifar-100-binary",
    ("train.bin", "test.bin", FINE_NAMES, "coarse_label_names.txt"),
)


@DATASETS.add("cifar100", paper="Krizhevsky, 2009, Learning multiple layers of features from tiny images", takes="word")
def cifar100(where: Path, *, coarse: bool = False, download: bool = True) -> RawDataset:
    """CIFAR-100, 50,000 / 10,000 colour images of 32 x 32 in 100 classes; ids follow the original order.

    When: a hundred classes of small photographs.
    When not: conclusions shall hold for large images.

    Args:
        where: the data folder, or the folder with the files.
        coarse: the 20 superclasses as labels; the other labelling is always kept as a column.
        download: fetch the archive when it is not in the data folder.

    Returns:
        The parts as the source holds them; `load_dataset` makes a checked `Dataset` of them.

    Raises:
        InputError: where the files are not there, or not whole.

    Example:
        >>> from confide import data
        >>> data.load_dataset("cifar100")  # doctest: +SKIP
    """
    folder = where if (where / FINE_NAMES).exists() else archive_folder(CIFAR100_ARCHIVE, where, download)
    parts = {}
    for split in ("train", "test"):
        images, labels = read_records([folder / f"{split}.bin"], label_bytes=2)
        columns = {"fine" if coarse else "coarse": labels[:, 1 if coarse else 0]}
        parts[split] = RawSplit(images, labels[:, 0 if coarse else 1], None, columns)
    names = read_names(folder / ("coarse_label_names.txt" if coarse else FINE_NAMES))
    return RawDataset(parts, names, "cifar100", Provenance(place=str(folder)))


recognises("cifar100", lambda path: folder_with((FINE_NAMES,), path, ("", CIFAR100_ARCHIVE.folder)) is not None)


# ---- CLINC150's JSON layout: intents, and queries that are out of scope ----

CLINC150_FILE = "data_full.json"


@DATASETS.add("clinc150", paper="Larson et al., 2019, arXiv:1909.02027", takes="path")
def clinc150(path: Path, *, out_of_scope: str = "leave") -> RawDataset:
    """CLINC150, queries of 150 intents and out-of-scope ones, from its JSON file: 15,000 / 3,000 / 4,500 queries.

    When: short texts of many classes, with ones that belong to none.
    When not: texts are long.

    Args:
        path: of data_full.json, or of its folder.
        out_of_scope: leave drops those queries (and records how many), class makes them one more class, only gives
            them alone, as val and test of a shifted dataset.

    Returns:
        The parts as the source holds them; `load_dataset` makes a checked `Dataset` of them.

    Raises:
        InputError: for a file of another layout.

    Example:
        >>> import json
        >>> from pathlib import Path
        >>> from confide import data
        >>> queries = [["what is my balance", "balance"], ["play a song", "music"]]
        >>> content = {"train": queries, "val": queries, "test": queries, "oos_test": [["hm", "oos"]]}
        >>> _ = Path("data_full.json").write_text(json.dumps(content))
        >>> data.load_dataset("data_full.json")
        <Dataset 'clinc150': text, 2 classes; train 2, val 2, test 2>
    """
    check_choice(out_of_scope, ("leave", "class", "only"), "out_of_scope")
    file = path / CLINC150_FILE if path.is_dir() else path
    content = read_json(file)
    if not isinstance(content, dict) or not set(SPLITS) <= set(content):
        raise InputError(f"{file} must be an object with train, val and test, got something else; is it CLINC150?")
    outside = {split: content.get(f"oos_{split}", []) for split in SPLITS}
    if out_of_scope == "only":
        return RawDataset({split: _query_part(outside[split], file) for split in ("val", "test")}, None, "clinc150-oos")
    with_outside = out_of_scope == "class"
    parts = {split: _query_part(content[split] + (outside[split] if with_outside else []), file) for split in SPLITS}
    left_out = {f"oos_{split}": f"{len(rows)} out-of-scope queries" for split, rows in outside.items()}
    return RawDataset(parts, None, "clinc150", Provenance(left_out={} if with_outside else left_out))


def _is_clinc150(path: Path) -> bool:
    return path.name == CLINC150_FILE if path.is_file() else (path / CLINC150_FILE).is_file()


recognises("clinc150", _is_clinc150)


def _query_part(rows: list[Any], file: Path) -> RawSplit:
    bad = next((row for row in rows if not (isinstance(row, list) and len(row) == 2)), None)
    if bad is not None:
        raise InputError(f"{file} must hold pairs of text and intent, got {bad!r}; is it CLINC150?")
    texts = np.empty(len(rows), dtype=object)
    texts[:] = [str(row[0]) for row in rows]
    return RawSplit(texts, np.array([str(row[1]) for row in rows]))


# ---- The sample of Fashion-MNIST inside the package ----

FASHION_SAMPLE_FILE = Path(__file__).with_name("fashion_sample.npz")


@DATASETS.add("fashion-sample", paper="Xiao et al., 2017, arXiv:1708.07747 (MIT licence)", takes="word")
def fashion_sample(data_folder: Path) -> RawDataset:
    """8,000 / 2,000 / 4,000 images of Fashion-MNIST, 10 classes, with 64-dimensional features; in the package.

    When: a first try without any download: it is in the package.
    When not: figures shall compare with papers: it is a sample.

    Args:
        data_folder: not used; the images are in the package.

    Returns:
        The parts as the source holds them; `load_dataset` makes a checked `Dataset` of them.

    Raises:
        InputError: the file of the package is missing.

    Example:
        >>> from confide import data
        >>> data.load_dataset("fashion-sample")
        <Dataset 'fashion-sample': image, 10 classes; train 8,000, val 2,000, test 4,000>
    """
    if not FASHION_SAMPLE_FILE.exists():
        raise InputError(
            f"the embedded data must lie at {FASHION_SAMPLE_FILE}, but the file is missing; install the package again, "
            "or rebuild it with tools/build_fashion_sample.py"
        )
    return replace(npz(FASHION_SAMPLE_FILE), name="fashion-sample")


# ---- MNIST, or any dataset laid out like it: four idx files, plain or packed by gzip ----

MNIST_PLACES = ("", "mnist", "MNIST", "MNIST/raw", "raw")
MNIST_FILES = {"train": "train", "test": "t10k"}


@DATASETS.add("mnist", paper="LeCun et al., 1998, doi:10.1109/5.726791", takes="word")
def mnist(where: Path) -> RawDataset:
    """MNIST, 60,000 / 10,000 grey images of 28 x 28 in 10 classes, from its idx files, in their order.

    When: digits, to compare with old papers.
    When not: methods are to be told apart: nearly all samples are easy.

    Args:
        where: the data folder, or the folder with the files.

    Returns:
        The parts as the source holds them; `load_dataset` makes a checked `Dataset` of them.

    Raises:
        InputError: where the files are not there, or not whole.

    Example:
        >>> from confide import data
        >>> data.load_dataset("mnist")  # doctest: +SKIP
    """
    folder = _mnist_folder(where)
    if folder is None:
        raise InputError(
            f"mnist must lie at {where / 'mnist'} as train-images-idx3-ubyte, t10k-images-idx3-ubyte and their labels "
            "(.gz will do), but it does not; put the four files there, or say where they are by folder= or CONFIDE_DATA"
        )
    parts = {}
    for split, prefix in MNIST_FILES.items():
        images = _read_idx(_idx_file(folder, f"{prefix}-images", 3), 3)
        labels = _read_idx(_idx_file(folder, f"{prefix}-labels", 1), 1)
        if len(images) != len(labels):
            raise InputError(f"{folder} must have a label per image in '{split}', got {len(labels)} and {len(images)}")
        parts[split] = RawSplit(images[:, None], labels.astype(np.int64))
    names = tuple(str(digit) for digit in range(1 + max(int(part.labels.max()) for part in parts.values())))
    name = "fashion-mnist" if "fashion" in str(folder).lower() else "mnist"
    return RawDataset(parts, names, name, Provenance(place=str(folder)))


def _idx_names(stem: str, dimensions: int) -> list[str]:
    return [f"{stem}{sign}idx{dimensions}-ubyte{end}" for sign in "-." for end in ("", ".gz")]


def _idx_file(folder: Path, stem: str, dimensions: int) -> Path:
    files = [folder / name for name in _idx_names(stem, dimensions) if (folder / name).is_file()]
    if not files:
        raise InputError(f"{folder} must hold {stem}-idx{dimensions}-ubyte (or .gz), but it does not; add the file")
    return files[0]


def _mnist_folder(where: Path) -> Path | None:
    return folder_with(_idx_names("train-images", 3), where, MNIST_PLACES)


def _read_idx(file: Path, dimensions: int) -> NDArray[np.uint8]:
    """Bytes of an idx file: two zeros, type 8 (bytes), the number of dimensions, the sizes, the values."""
    header_bytes = 4 + 4 * dimensions
    try:
        with gzip.open(file, "rb") if file.suffix == ".gz" else open(file, "rb") as stream:
            header = stream.read(header_bytes)
            is_idx = len(header) == header_bytes and header[:4] == bytes((0, 0, 8, dimensions))
            shape = tuple(np.frombuffer(header[4:], dtype=">u4").astype(int).tolist()) if is_idx else ()
            # One byte more than promised: a file that is too long is found out without reading all of it.
            size = int(np.prod(shape)) if is_idx else 0
            values = stream.read(size + 1)
    except (OSError, EOFError, zlib.error) as error:
        raise InputError(f"{file} must be a readable idx file, but: {error}; fetch it again") from None
    if not is_idx or len(values) != size or not size:
        raise InputError(
            f"{file} must be an idx file of bytes with {dimensions} dimensions, but it is not; fetch it again"
        )
    return np.frombuffer(values, dtype=np.uint8).reshape(shape).copy()


recognises("mnist", lambda path: _mnist_folder(path) is not None)


# ---- Street View House Numbers from its cropped-digit .mat files ----

SVHN_PLACES = ("", "svhn", "SVHN")
SVHN_FILES = {"train": "train_32x32.mat", "test": "test_32x32.mat"}


@DATASETS.add("svhn", paper="Netzer et al., 2011, Reading digits in natural images", takes="word")
def svhn(where: Path) -> RawDataset:
    """House numbers, 73,257 / 26,032 colour images of 32 x 32 in 10 classes; one of the two files will do.

    When: data from elsewhere for networks of CIFAR.
    When not: photographs of things are wanted.

    Args:
        where: the data folder, or the folder with the files.

    Returns:
        The parts as the source holds them; `load_dataset` makes a checked `Dataset` of them.

    Raises:
        InputError: where the files are not there, or not whole.

    Example:
        >>> from confide import data
        >>> data.load_dataset("svhn")  # doctest: +SKIP
    """
    folder = folder_with(SVHN_FILES.values(), where, SVHN_PLACES)
    if folder is None:
        raise InputError(
            f"svhn must lie at {where / 'svhn'} as train_32x32.mat and test_32x32.mat, but it does not; put the files "
            "there, or say where they are by folder= or CONFIDE_DATA"
        )
    parts = {split: _read_mat(folder / name) for split, name in SVHN_FILES.items() if (folder / name).is_file()}
    return RawDataset(parts, tuple("0123456789"), "svhn", Provenance(place=str(folder)))


def _read_mat(file: Path) -> RawSplit:
    """Images `h w c n` and labels 1 to 10, where 10 is the digit 0."""
    from scipy.io import loadmat

    try:
        content = loadmat(str(file), variable_names=["X", "y"])
        images, labels = np.asarray(content["X"]), np.asarray(content["y"]).reshape(-1).astype(np.int64)
    except Exception as error:  # the reader of .mat files raises errors of many kinds on damaged ones
        raise InputError(f"{file} must be a readable .mat file with X and y, but: {error}; fetch it again") from None
    if images.ndim != 4 or images.dtype != np.uint8 or images.shape[2] != 3 or images.shape[3] != len(labels):
        raise InputError(
            f"{file} must hold X, uint8 h x w x 3 x n, and n labels, got {images.dtype} {images.shape}, {len(labels)}"
        )
    return RawSplit(np.ascontiguousarray(images.transpose(3, 2, 0, 1)), labels % 10)


recognises("svhn", lambda path: folder_with(SVHN_FILES.values(), path, SVHN_PLACES) is not None)


# ---- Tiny-ImageNet's folder layout: train/<wnid>/images, val/images with val_annotations.txt ----

TINY_IMAGENET_FOLDER = "tiny-imagenet-200"


@DATASETS.add("tiny-imagenet", paper="Le and Yang, 2015, Tiny ImageNet visual recognition challenge", takes="word")
def tiny_imagenet(
    where: Path, *, data_folder: Path, size: int | tuple[int, int] | None = None, memory_gb: float = 2.0
) -> RawDataset:
    """Tiny-ImageNet, 100,000 / 10,000 colour images of 64 x 64 in 200 classes, unpacked in the data folder.

    The official validation images are `test` here, since the labels of the official test images are not public.

    When: two hundred classes without a large download.
    When not: figures of ImageNet are wanted.

    Args:
        where: the data folder, or the folder with the files.
        data_folder: where lists of checked images are kept; `load_dataset` fills it in.
        size: side, or (height, width), instead of 64.
        memory_gb: decoded images up to this stay in memory; the whole set takes 1.4.

    Returns:
        The parts as the source holds them; `load_dataset` makes a checked `Dataset` of them.

    Raises:
        InputError: where the files are not there, or not whole.

    Example:
        >>> from confide import data
        >>> data.load_dataset("tiny-imagenet")  # doctest: +SKIP
    """
    root = where if (where / "wnids.txt").exists() else where / TINY_IMAGENET_FOLDER
    if not (root / "wnids.txt").exists():
        raise InputError(
            f"tiny-imagenet must lie at {root}, but it does not; unpack {TINY_IMAGENET_FOLDER}.zip there, "
            "or say where it is by folder= or CONFIDE_DATA"
        )
    wnids = sorted((root / "wnids.txt").read_text(encoding="utf-8").split())
    train = list_images(root, root / "train", wnids)
    parts: dict[str, tuple[EncodedImages, RawSplit]] = {
        "train": image_part(root, "train", train.names, train.labels),
        "test": image_part(root, "test", *_validation_images(root, wnids)),
    }
    unlabelled = sum(1 for _ in (root / "test" / "images").glob("*")) if (root / "test" / "images").is_dir() else 0
    provenance = Provenance(
        place=str(root),
        roles="the official validation images are the split 'test'",
        left_out={"test/images": f"{unlabelled} images without labels"} if unlabelled else {},
    )
    raw = RawDataset({}, _wnid_names(root, wnids), "tiny-imagenet", provenance)
    return read_images(parts, ImageOptions(size, "crop", 3, memory_gb), data_folder, raw)


def _is_tiny_imagenet(path: Path) -> bool:
    return any(
        (place / "wnids.txt").is_file() and (place / "train").is_dir() for place in (path, path / TINY_IMAGENET_FOLDER)
    )


recognises("tiny-imagenet", _is_tiny_imagenet)


def _validation_images(root: Path, wnids: list[str]) -> tuple[list[str], list[int]]:
    file = root / "val" / "val_annotations.txt"
    if not file.exists():
        raise InputError(f"{file} must list the validation images, but it does not exist; unpack the archive again")
    index = {wnid: i for i, wnid in enumerate(wnids)}
    names, labels = [], []
    for number, line in enumerate(file.read_text(encoding="utf-8").splitlines(), 1):
        words = line.split("\t")
        if len(words) < 2 or words[1] not in index:
            raise InputError(f"{file} must give image and class in every line, got {line[:60]!r} in line {number}")
        names.append(f"val/images/{words[0]}")
        labels.append(index[words[1]])
    return names, labels


def _wnid_names(root: Path, wnids: list[str]) -> tuple[str, ...]:
    """The first of each class's words; the wnid where there are none."""
    words: dict[str, str] = {}
    if (root / "words.txt").exists():
        lines = (root / "words.txt").read_text(encoding="utf-8").splitlines()
        words = {wnid: text.split(",")[0].strip() for wnid, _, text in (line.partition("\t") for line in lines)}
    return tuple(words.get(wnid) or wnid for wnid in wnids)
