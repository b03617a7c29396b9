import pytest

from confide.checks import InputError
from confide.data import load_dataset

WNIDS = ("n003", "n001", "n002")


@pytest.fixture
def root(tmp_path, save_image):
    root = tmp_path / "tiny-imagenet-200"
    lines = []
    for k, wnid in enumerate(sorted(WNIDS)):
        for i in range(10):
            save_image(root / "train" / wnid / "images" / f"{wnid}_{i}.JPEG", 60 * k, size=(64, 64))
        (root / "train" / wnid / f"{wnid}_boxes.txt").write_text("")
        save_image(root / "val" / "images" / f"val_{k}.JPEG", 60 * k, size=(64, 64))
        lines.append(f"val_{k}.JPEG\t{wnid}\t0\t0\t62\t62\n")
    save_image(root / "test" / "images" / "test_0.JPEG", 0)
    (root / "wnids.txt").write_text("\n".join(WNIDS))
    (root / "words.txt").write_text("n001\tgoldfish, Carassius auratus\nn002\tbullfrog\nn999\tother\n")
    (root / "val" / "val_annotations.txt").write_text("".join(lines))
    return root


def test_the_folder_layout(root):
    dataset = load_dataset("tiny-imagenet", folder=root.parent)
    assert dataset.class_names == ("goldfish", "bullfrog", "n003")
    assert {name: len(split) for name, split in dataset.splits.items()} == {"train": 27, "val": 3, "test": 3}
    assert dataset.test.ids.tolist() == [f"val/images/val_{k}.JPEG" for k in range(3)]
    assert dataset.test.labels.tolist() == [0, 1, 2]
    for split in dataset.splits.values():
        assert (abs(split.inputs[:, 0, 30, 30].astype(int) - 60 * split.labels) < 6).all()
    assert dataset.provenance.left_out == {"test/images": "1 images without labels"}
    assert "split 'test'" in dataset.provenance.roles


def test_the_path_is_enough(root):
    assert load_dataset(root).name == "tiny-imagenet"
    assert load_dataset(root.parent, size=16).train.inputs.shape == (27, 3, 16, 16)


def test_a_listed_image_that_is_missing_is_set_aside(root):
    (root / "val" / "images" / "val_1.JPEG").unlink()
    dataset = load_dataset(root)
    assert [name for name, _ in dataset.set_aside] == ["val/images/val_1.JPEG"]
    assert dataset.provenance.classes_without_samples == {"test": ("bullfrog",)}


def test_what_is_missing_is_said(root, tmp_path):
    with pytest.raises(InputError, match=r"tiny-imagenet must lie at .*; unpack tiny-imagenet-200.zip there"):
        load_dataset("tiny-imagenet", folder=tmp_path / "nowhere")
    (root / "val" / "val_annotations.txt").write_text("val_0.JPEG\tn777\n")
    with pytest.raises(InputError, match=r"must give image and class in every line, got 'val_0.*' in line 1"):
        load_dataset(root)
    (root / "val" / "val_annotations.txt").unlink()
    with pytest.raises(InputError, match="must list the validation images, but it does not exist"):
        load_dataset(root)


def test_without_the_unlabelled_images_nothing_is_left_out(root):
    (root / "test" / "images" / "test_0.JPEG").unlink()
    assert load_dataset(root).provenance.left_out == {}
    (root / "test" / "images").rmdir()
    assert load_dataset(root).provenance.left_out == {}
