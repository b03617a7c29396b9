"""What travels to another machine comes back as it was."""

import numpy as np

from benchmarks.resplits import carry


def test_images_are_packed_without_loss(tmp_path, monkeypatch):
    monkeypatch.setattr(carry, "BATCH", 40)
    monkeypatch.setattr(carry, "ACROSS", 8)
    draw = np.random.default_rng(0)
    for name in carry.BATCHES:
        draw.integers(0, 256, (40, 3073), dtype=np.uint8).tofile(tmp_path / f"{name}.bin")
    carry.pack(tmp_path, tmp_path / "packed")
    folder = carry.unpack(tmp_path / "packed", tmp_path / "out")
    for name in carry.BATCHES:
        assert (folder / f"{name}.bin").read_bytes() == (tmp_path / f"{name}.bin").read_bytes()


def test_archives_grow_and_a_torn_one_gives_what_it_has(tmp_path, monkeypatch):
    monkeypatch.setattr(carry, "LARGEST", 30_000)
    contents = {f"cell-{k}.npz": np.random.default_rng(k).bytes(9_000) for k in range(6)}
    for name, content in contents.items():
        (tmp_path / name).write_bytes(content)
        carry.add_result(tmp_path / name, tmp_path / "out", "first")
    archives = sorted((tmp_path / "out").glob("*.tar"))
    assert len(archives) > 1
    assert carry.collect(tmp_path / "out", tmp_path / "state") == 6
    assert all((tmp_path / "state" / name).read_bytes() == content for name, content in contents.items())
    archives[0].write_bytes(archives[0].read_bytes()[:12_000])  # stopped while the second file was written
    assert carry.collect(tmp_path / "out", tmp_path / "again") == 5  # of two in that archive the first
