import os
import shutil
from importlib import import_module
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from confide.checks import InputError
from confide.data import LazyImages, images, load_dataset
from confide.records import OtherFiles


def shades(split):
    """What the ids say the red pixels must be."""
    return [100 * ("dog" in name) + int(name[-7:-4]) for name in split.ids]


def test_one_folder_per_class_is_split_by_seed(image_folder):
    dataset = load_dataset(image_folder, val_fraction=0.2, test_fraction=0.2)
    assert (dataset.name, dataset.kind, dataset.class_names) == ("pets", "image", ("cat", "dog"))
    assert {name: len(split) for name, split in dataset.splits.items()} == {"train": 12, "val": 4, "test": 4}
    assert dataset.train.inputs.shape == (12, 3, 6, 8)
    assert dataset.train.ids[0].startswith("cat/")
    for split in dataset.splits.values():
        assert split.inputs[:, 0, 2, 3].tolist() == shades(split)
        assert (split.labels == [int("dog" in name) for name in split.ids]).all()


def test_folders_named_train_val_test_are_the_splits(tmp_path, save_image):
    for split, n in (("train", 6), ("validation", 3), ("test", 2)):
        for name in ("a", "b"):
            for i in range(n):
                save_image(tmp_path / split / name / f"{i}.png", i, mode="L")
    dataset = load_dataset(tmp_path)
    assert {name: len(split) for name, split in dataset.splits.items()} == {"train": 12, "val": 6, "test": 4}
    assert dataset.train.inputs.shape[1] == 1  # all are grey
    assert dataset.val.ids[0] == "validation/a/0.png"
    assert dataset.provenance.splits["val"] == "as given"


def test_a_test_folder_without_classes_is_left_out_and_said_so(tmp_path, save_image):
    for i in range(20):
        save_image(tmp_path / "train" / "ab"[i % 2] / f"{i}.png", i)
    save_image(tmp_path / "test" / "1.png", 1)
    dataset = load_dataset(tmp_path)
    assert dataset.provenance.left_out == {"test": "no class folders"}
    assert dataset.provenance.splits["test"].startswith("cut from 'train'")


@pytest.mark.parametrize("memory_gb", [1.0, 0.0], ids=["in memory", "when asked for"])
def test_undecodable_images_are_set_aside_and_listed(image_folder, memory_gb, save_image):
    (image_folder / "cat" / "003.png").write_bytes(b"this is no image")
    whole = save_image(image_folder / "dog" / "004.jpg", 104, size=(64, 64)).read_bytes()
    (image_folder / "dog" / "004.png").unlink()
    (image_folder / "dog" / "004.jpg").write_bytes(whole[: len(whole) // 2])
    (image_folder / "dog" / "005.png").write_bytes(b"")
    (image_folder / "dog" / "notes.txt").write_text("not an image, by its name")
    dataset = load_dataset(image_folder, memory_gb=memory_gb)
    reasons = dict(dataset.set_aside)
    assert sorted(reasons) == ["cat/003.png", "dog/004.jpg", "dog/005.png"]
    assert reasons["cat/003.png"] == "not an image that can be identified"
    assert "truncated" in reasons["dog/004.jpg"].lower()
    assert sum(map(len, dataset.splits.values())) == 17
    assert dataset.provenance.other_files == OtherFiles(1, ("dog/notes.txt",))
    for split in dataset.splits.values():
        assert split.inputs[:][:, 0, 2, 3].tolist() == shades(split)


def test_setting_one_aside_moves_no_other_sample(image_folder):
    before = load_dataset(image_folder, val_fraction=0.2, test_fraction=0.2)
    victim = before.train.ids[0]
    (image_folder / victim).write_bytes(b"broken")
    after = load_dataset(image_folder, val_fraction=0.2, test_fraction=0.2)
    assert set(after.test.ids) <= set(before.test.ids)
    assert dict(after.set_aside).keys() == {victim}


def test_big_folders_are_decoded_when_asked_for(image_folder):
    now, later = load_dataset(image_folder), load_dataset(image_folder, memory_gb=0)
    assert isinstance(later.train.inputs, LazyImages)
    assert later.provenance.decoded == "when asked for"
    for name, split in later.splits.items():
        assert split.ids.tolist() == now.split(name).ids.tolist()
        assert (np.asarray(split.inputs) == now.split(name).inputs).all()


def test_images_of_several_sizes_get_one(tmp_path, save_image):
    for i in range(20):
        save_image(tmp_path / "ab"[i % 2] / f"{i}.png", i, size=(20 + i, 40))
    dataset = load_dataset(tmp_path)
    # Short sides are 20 .. 39: their median is 29.5.
    assert dataset.train.inputs.shape[1:] == (3, 29, 29)
    assert dataset.provenance.image_size == (29, 29)
    assert load_dataset(tmp_path, size=16).train.inputs.shape[1:] == (3, 16, 16)
    assert load_dataset(tmp_path, size=[8, 12], channels=1).train.inputs.shape[1:] == (1, 8, 12)


def test_crop_keeps_the_centre_and_stretch_keeps_all(tmp_path):
    for i in range(12):
        picture = Image.new("L", (30, 10), 0)
        picture.paste(255, (10, 0, 20, 10))  # white in the middle third
        (tmp_path / "ab"[i % 2]).mkdir(exist_ok=True)
        picture.save(tmp_path / "ab"[i % 2] / f"{i}.png")
    cropped = load_dataset(tmp_path, size=10).train.inputs
    stretched = load_dataset(tmp_path, size=10, fit="stretch").train.inputs
    assert (cropped == 255).all()
    assert 0.25 < (stretched > 127).mean() < 0.45


def test_class_folders_that_are_numbers_are_in_the_order_of_numbers(tmp_path, save_image):
    for name in range(12):
        for i in range(3):
            save_image(tmp_path / str(name) / f"{i}.png", name)
    dataset = load_dataset(tmp_path, val_fraction=0, test_fraction=0.3)
    assert dataset.class_names == tuple(map(str, range(12)))
    assert (dataset.train.inputs[:, 0, 0, 0] == dataset.train.labels).all()


def test_the_list_of_checked_images_saves_the_second_check(tmp_path, save_image, monkeypatch):
    for split in ("train", "test"):
        for i in range(10):
            save_image(tmp_path / "pets" / split / "ab"[i % 2] / f"{i}.png", i)
    load_dataset(tmp_path / "pets", memory_gb=0)
    opened = []
    original = images.inspect_image
    monkeypatch.setattr(
        images, "inspect_image", lambda file, deep: opened.append(Path(file.name).name) or original(file, deep)
    )
    again = load_dataset(tmp_path / "pets", memory_gb=0)
    assert opened == []
    assert len(again.set_aside) == 0
    # A file that changed is looked at again.
    (tmp_path / "pets" / "train" / "b" / "1.png").write_bytes(b"broken")
    changed = load_dataset(tmp_path / "pets", memory_gb=0)
    assert [name for name, _ in changed.set_aside] == ["train/b/1.png"]
    assert changed.provenance.fingerprint != again.provenance.fingerprint
    assert opened == ["1.png", "1.png"]


def test_a_data_folder_that_cannot_be_written_is_no_matter(image_folder, tmp_path):
    (tmp_path / "home").write_text("a file where the folder should be")
    assert len(load_dataset(image_folder, memory_gb=0, folder=tmp_path / "home").train) == 16


def test_bad_folders_get_one_line(image_folder, tmp_path, save_image):
    (image_folder / "bird").mkdir()
    with pytest.raises(InputError, match="every class must have samples in 'train', got none for 'bird'"):
        load_dataset(image_folder)
    shutil.rmtree(image_folder / "bird")
    shutil.rmtree(image_folder / "dog")
    with pytest.raises(InputError, match="at least two classes, got only 'cat'"):
        load_dataset(image_folder)
    os.rename(image_folder, tmp_path / "train")
    (tmp_path / "val").mkdir()
    with pytest.raises(InputError, match="split 'val' must hold at least one sample, got an empty one"):
        load_dataset(f"folder:{tmp_path}")
    flat = save_image(tmp_path / "flat" / "train" / "1.png", 1).parent.parent
    with pytest.raises(
        InputError, match="train must hold one folder of images per class, got none; sort the images by class"
    ):
        load_dataset(flat)
    for name in "ab":
        (tmp_path / "broken" / name).mkdir(parents=True)
        (tmp_path / "broken" / name / "1.png").write_bytes(b"?")
    with pytest.raises(InputError, match="'broken' must hold images that can be read, but none of 2 can"):
        load_dataset(tmp_path / "broken")


@pytest.mark.parametrize(
    ("option", "message"),
    [
        ({"size": -1}, "size must be a side or .height, width. in whole pixels, got -1"),
        ({"size": (3, 4, 5)}, "size of dataset 'folder' must be a whole number or a list of"),
        ({"fit": "squeeze"}, "fit must be one of 'crop', 'stretch', got 'squeeze'"),
        ({"channels": 2}, "channels must be one of None, 1, 3, got 2"),
        ({"memory_gb": -1}, "memory_gb must lie in"),
    ],
)
def test_bad_image_options_get_one_line(image_folder, option, message):
    with pytest.raises(InputError, match=message):
        load_dataset(image_folder, **option)


@pytest.mark.parametrize("where", ["20news-bydate", "downloads"])
def test_texts_in_the_folders_of_20_newsgroups(tmp_path, where):
    root = tmp_path / where
    for split, n in (("train", 12), ("test", 4)):
        for name in ("alt.atheism", "sci.space"):
            (root / f"20news-bydate-{split}" / name).mkdir(parents=True)
            for number in range(n):
                text = f"From: caf\xe9 {number}\n{name}".encode("latin-1")
                (root / f"20news-bydate-{split}" / name / str(50000 + number)).write_bytes(text)
    dataset = load_dataset(root)
    assert (dataset.kind, dataset.class_names) == ("text", ("alt.atheism", "sci.space"))
    assert len(dataset.test) == 8
    assert len(dataset.train) + len(dataset.val) == 24
    assert "café" in dataset.test.inputs[0]
    assert str(dataset.test.ids[0]) == "20news-bydate-test/alt.atheism/50000"


@pytest.mark.parametrize(
    ("folders", "splits"),
    [
        (("any/news-train", "any/news-test"), {"news-train": "train", "news-test": "test"}),
        (("any/old-train", "any/new-test"), {}),
        (("any/news-train", "any/news-sport"), {}),
        (("news/news-train", "news/sport"), {"news-train": "train"}),
        (("any/train", "any/sport"), {"train": "train"}),
    ],
)
def test_folders_are_splits_by_what_follows_a_beginning_that_all_share(tmp_path, folders, splits):
    for name in folders:
        (tmp_path / name).mkdir(parents=True)
    assert import_module("confide.data.folder")._split_words(tmp_path / folders[0].split("/")[0]) == splits
