import hashlib
import http.server
import io
import tarfile
import threading
from dataclasses import replace
from importlib import import_module

import numpy as np
import pytest

from confide.checks import InputError
from confide.data import load_dataset

MODULE = import_module("confide.data.datasets")


def binary(n, begin=0):
    """n records of the official layout: the label, then red, green and blue planes; red holds the number."""
    records = np.zeros((n, 3073), dtype=np.uint8)
    records[:, 0] = np.arange(n) % 10
    records[:, 1:1025] = (begin + np.arange(n))[:, None]
    return records.tobytes()


def contents():
    files = {f"data_batch_{i}.bin": binary(40, 40 * (i - 1)) for i in range(1, 6)}
    files["test_batch.bin"] = binary(20)
    files["batches.meta.txt"] = "\n".join([*"abcdefghij", ""]).encode()
    return files


@pytest.fixture
def folder(tmp_path):
    place = tmp_path / "cifar-10-batches-bin"
    place.mkdir()
    for name, content in contents().items():
        (place / name).write_bytes(content)
    return place


@pytest.fixture
def archive():
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w:gz") as tar:
        for name, content in {**contents(), "readme.html": b"<b>", "../../evil.bin": b"no"}.items():
            info = tarfile.TarInfo(f"cifar-10-batches-bin/{name}")
            info.size = len(content)
            tar.addfile(info, io.BytesIO(content))
    return buffer.getvalue()


@pytest.fixture
def site(archive, tmp_path):
    """A web server on this machine that has the archive."""
    (tmp_path / "www").mkdir()
    (tmp_path / "www" / "cifar-10-binary.tar.gz").write_bytes(archive)

    class Quiet(http.server.SimpleHTTPRequestHandler):
        def __init__(self, *arguments):
            super().__init__(*arguments, directory=str(tmp_path / "www"))

        def log_message(self, *_):
            pass

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Quiet)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}/cifar-10-binary.tar.gz"
    server.shutdown()
    server.server_close()


def check(dataset):
    assert (dataset.name, dataset.class_names) == ("cifar10", tuple("abcdefghij"))
    assert {name: len(split) for name, split in dataset.splits.items()} == {"train": 180, "val": 20, "test": 20}
    numbers = [int(name.split("-")[1]) for name in dataset.train.ids]
    assert dataset.train.inputs.shape == (180, 3, 32, 32)
    assert dataset.train.inputs[:, 0, 31, 31].tolist() == numbers
    assert dataset.train.inputs[:, 1].max() == 0
    assert (dataset.train.labels == np.array(numbers) % 40 % 10).all()


def test_the_official_binaries_in_the_data_folder_or_by_path(folder):
    check(load_dataset("cifar10", folder=folder.parent))
    check(load_dataset(folder))
    check(load_dataset(str(folder.parent)))
    check(load_dataset(f"cifar10:{folder}"))


def test_an_archive_in_the_data_folder_is_unpacked_and_writes_nowhere_else(tmp_path, archive):
    home = tmp_path / "deep" / "home"
    home.mkdir(parents=True)
    (home / "cifar-10-binary.tar.gz").write_bytes(archive)
    check(load_dataset("cifar10", folder=home))
    assert not list(tmp_path.rglob("evil.bin"))
    assert not list(tmp_path.rglob("readme.html"))


def test_it_is_downloaded_with_a_checksum(site, archive, tmp_path, monkeypatch):
    md5 = hashlib.md5(archive).hexdigest()
    monkeypatch.setattr(MODULE, "CIFAR10_ARCHIVE", replace(MODULE.CIFAR10_ARCHIVE, url=site, md5=md5))
    check(load_dataset("cifar10", folder=tmp_path / "home"))
    monkeypatch.setattr(MODULE, "CIFAR10_ARCHIVE", replace(MODULE.CIFAR10_ARCHIVE, url="http://127.0.0.1:9/none"))
    check(load_dataset("cifar10", folder=tmp_path / "home"))  # a second time nothing is fetched


def test_a_wrong_checksum_is_refused_and_nothing_kept(site, tmp_path, monkeypatch):
    monkeypatch.setattr(MODULE, "CIFAR10_ARCHIVE", replace(MODULE.CIFAR10_ARCHIVE, url=site))
    with pytest.raises(InputError, match="must have the checksum c32a1d4ab5d03f1284b67883e8d87530, got"):
        load_dataset("cifar10", folder=tmp_path / "home")
    assert list((tmp_path / "home").iterdir()) == []


def test_without_internet_the_line_says_what_to_do(tmp_path, monkeypatch, site):
    for url in ("http://127.0.0.1:9/cifar-10-binary.tar.gz", site + ".gone"):
        monkeypatch.setattr(MODULE, "CIFAR10_ARCHIVE", replace(MODULE.CIFAR10_ARCHIVE, url=url))
        with pytest.raises(
            InputError, match=r"could not be downloaded \(.*\); put cifar-10-binary.tar.gz.* from http"
        ) as caught:
            load_dataset("cifar10", folder=tmp_path / "home")
        assert "\n" not in str(caught.value)
        assert "CONFIDE_DATA" in str(caught.value)
    with pytest.raises(InputError, match=r"must hold data_batch_1.bin and others, but it does not; put"):
        load_dataset("cifar10", folder=tmp_path / "home", download=False)


def test_damaged_files_get_one_line(folder, tmp_path):
    (folder / "data_batch_3.bin").write_bytes(b"\0" * 5000)
    with pytest.raises(InputError, match=r"data_batch_3.bin must hold records of 3073 bytes, got 5000 bytes"):
        load_dataset(folder)
    (tmp_path / "home").mkdir()
    (tmp_path / "home" / "cifar-10-binary.tar.gz").write_bytes(b"\x1f\x8b broken")
    with pytest.raises(InputError, match="must be a whole archive, but it cannot be read"):
        load_dataset("cifar10", folder=tmp_path / "home")
    with tarfile.open(tmp_path / "home" / "cifar-10-binary.tar.gz", "w:gz"):
        pass
    with pytest.raises(InputError, match=r"must hold batches.meta.txt, data_batch_1.bin"):
        load_dataset("cifar10", folder=tmp_path / "home")


def test_the_archive_is_the_official_one():
    assert MODULE.CIFAR10_ARCHIVE.url == "https://www.cs.toronto.edu/~kriz/cifar-10-binary.tar.gz"
    assert MODULE.CIFAR10_ARCHIVE.md5 == "c32a1d4ab5d03f1284b67883e8d87530"
