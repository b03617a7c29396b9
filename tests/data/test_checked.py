import pytest

from confide.data import images, load_dataset
from confide.data.images import ImageFiles


def test_a_check_that_is_stopped_goes_on_where_it_was(image_folder, monkeypatch):
    monkeypatch.setattr(images, "IMAGES_PER_WRITE", 4)
    examine = images.inspect_image
    deep = []

    def stops_after_ten(file, whole):
        if whole:
            deep.append(file.name)
            if len(deep) > 10:
                file.close()
                raise KeyboardInterrupt
        return examine(file, whole)

    monkeypatch.setattr(images, "inspect_image", stops_after_ten)
    with pytest.raises(KeyboardInterrupt):
        load_dataset(image_folder, memory_gb=0)
    again = []
    monkeypatch.setattr(images, "inspect_image", lambda file, whole: again.append(whole) or examine(file, whole))
    assert len(load_dataset(image_folder, memory_gb=0).train) == 16
    # Two blocks of four were remembered: twelve of twenty are left.
    assert sum(again) == 12


def test_a_damaged_list_is_made_anew(image_folder, tmp_path):
    load_dataset(image_folder, memory_gb=0, folder=tmp_path / "home")
    (written,) = (tmp_path / "home" / "checked-images").iterdir()
    written.write_bytes(b"not parquet")
    assert len(load_dataset(image_folder, memory_gb=0, folder=tmp_path / "home").train) == 16
    assert written.read_bytes().startswith(b"PAR1")


def test_files_that_vanish_are_wrong_and_have_no_stamp(image_folder):
    files = ImageFiles(image_folder, "all", ["cat/000.png", "cat/none.png"])
    assert files.stamps([0, 1])[1] == "gone"
    assert files.stamps([0])[0] != "gone"
