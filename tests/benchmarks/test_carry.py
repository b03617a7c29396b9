"""What travels to another machine comes back as it was."""

import numpy as np

from benchmarks.resplits import carry


def test_images_are_packed_without_loss(tmp_path, monkeypatch):
    monkeypatch.setattr(carry, "BATCH", 40)
    monkeypatch.setattr(carry, "ACROSS", 8)
    draw = np.random.default_rng(0)
    for name in carry.BATCHES:
        draw.integers(0, 256, (40, 3073), dtype=np.uint8).tofile(tmp_path / f"{name}.bin")
    (tmp_path / carry.CLASSES).write_text("airplane\n")
    carry.pack(tmp_path, tmp_path / "packed")
    folder = carry.unpack(tmp_path / "packed", tmp_path / "out")
    for name in (*(f"{batch}.bin" for batch in carry.BATCHES), carry.CLASSES):
        assert (folder / name).read_bytes() == (tmp_path / name).read_bytes()


def test_what_was_made_goes_back_in_archives_of_a_size_and_a_torn_one_gives_what_it_has(tmp_path, monkeypatch):
    monkeypatch.setattr(carry, "LARGEST", 30_000)
    contents = {f"cell-{k}.npz": np.random.default_rng(k).bytes(9_000) for k in range(7)}
    for name, content in contents.items():
        (tmp_path / name).write_bytes(content)
    assert carry.ship(tmp_path, tmp_path / "out", done=frozenset(["cell-6.npz"])) == 0
    archives = sorted((tmp_path / "out").glob("*.tar"))
    assert len(archives) == 2
    assert carry.collect(tmp_path / "out", tmp_path / "state") == 6
    assert all((tmp_path / "state" / f"cell-{k}.npz").read_bytes() == contents[f"cell-{k}.npz"] for k in range(6))
    archives[0].write_bytes(archives[0].read_bytes()[:12_000])  # stopped while the second file was written
    assert carry.collect(tmp_path / "out", tmp_path / "again") == 4  # of three in that archive the first
    monkeypatch.setattr(carry, "MOST_ARCHIVES", 1)
    assert carry.ship(tmp_path, tmp_path / "less") == 4
