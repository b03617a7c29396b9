import io

import numpy as np
import pytest
from PIL import Image

from confide import difficulty
from confide.checks import InputError
from confide.files import formats
from confide.records import Scores
from confide.scale import FolderScoring, score_folder


@pytest.fixture
def folder(tmp_path):
    """Four parquet files of features, unequal in size; the last class is met only in the last file."""
    draw = np.random.default_rng(0)
    labels = np.sort(draw.integers(0, 6, 700))
    rows = (draw.normal(size=(700, 12)) + 3 * draw.normal(size=(6, 12))[labels]).astype(np.float32)
    ids = np.array([f"s{i}" for i in range(700)])
    for k, part in enumerate(np.split(np.arange(700), [100, 350, 360])):
        formats.write_table(
            tmp_path / "in" / f"part-{k}.parquet", {"id": ids[part], "label": labels[part], "features": rows[part]}
        )
    return tmp_path, rows, labels, ids


def joined(summary):
    parts = [Scores.load(path) for path in sorted(summary.scores.glob("*.parquet"))]
    return np.concatenate([p.ids for p in parts]), np.concatenate([p.values for p in parts])


@pytest.mark.parametrize("method", ["rmd", "md"])
def test_same_numbers_as_in_memory(folder, method):
    where, rows, labels, ids = folder
    summary = score_folder(FolderScoring(where / "in", where / "out", method, engine="local"))
    found, values = joined(summary)
    np.testing.assert_array_equal(found, ids)
    np.testing.assert_allclose(values, difficulty.score(method, rows, labels).values, atol=1e-5)
    assert summary.n == 700


def test_a_stopped_job_does_only_what_is_missing(folder):
    where, *_ = folder
    job = FolderScoring(where / "in", where / "out", engine="local")
    first = score_folder(job)
    assert first.computed == 4
    path = first.scores / "part-2.parquet"
    before = joined(first)[1]
    path.unlink()
    again = score_folder(job)
    assert again.computed == 1
    np.testing.assert_array_equal(joined(again)[1], before)


def test_features_are_extracted_from_the_files_inputs(folder, tmp_path):
    draw = np.random.default_rng(1)
    rows = draw.normal(size=(90, 5)).astype(np.float32)
    labels = draw.integers(0, 3, 90)
    for k in range(3):
        part = slice(30 * k, 30 * k + 30)
        formats.write_table(tmp_path / "rows" / f"{k}.parquet", {"label": labels[part], "row": rows[part]})
    summary = score_folder(FolderScoring(tmp_path / "rows", tmp_path / "made", features="pixels", engine="local"))
    ids, values = joined(summary)
    assert ids[0] == "0-0"
    np.testing.assert_allclose(values, difficulty.score("rmd", rows, labels).values, atol=1e-5)


def test_rank_deficient_data_is_shrunk_alike(tmp_path):
    draw = np.random.default_rng(0)
    rows, labels = draw.normal(size=(30, 50)), draw.integers(0, 3, 30)
    for k in range(2):
        part = slice(15 * k, 15 * k + 15)
        formats.write_table(tmp_path / "in" / f"{k}.parquet", {"label": labels[part], "features": rows[part]})
    summary = score_folder(FolderScoring(tmp_path / "in", tmp_path / "out", engine="local"))
    np.testing.assert_allclose(joined(summary)[1], difficulty.score("rmd", rows, labels).values, atol=1e-8)
    assert any("Ledoit-Wolf" in note for note in summary.notes)


def test_bad_input_gets_one_line(folder, tmp_path):
    where, *_ = folder
    with pytest.raises(InputError, match="the methods are rmd and md"):
        score_folder(FolderScoring(where / "in", where / "out", "kmeans", engine="local"))
    with pytest.raises(InputError, match="folder of parquet files"):
        score_folder(FolderScoring(where / "nowhere", where / "out", engine="local"))
    formats.write_table(tmp_path / "bare" / "0.parquet", {"label": np.zeros(3, dtype=np.int64)})
    with pytest.raises(InputError, match="must have columns features"):
        score_folder(FolderScoring(tmp_path / "bare", where / "out", engine="local"))
    (where / "in" / "part-1.parquet").write_bytes(b"PAR1 no")
    with pytest.raises(InputError):
        score_folder(FolderScoring(where / "in", where / "other", engine="local"))


def test_a_changed_file_changes_all_scores(folder):
    where, rows, labels, _ = folder
    job = FolderScoring(where / "in", where / "out", engine="local")
    before = joined(score_folder(job))[1]
    changed = rows.copy()
    changed[:100] += 1
    formats.write_table(where / "in" / "part-0.parquet", {"label": labels[:100], "features": changed[:100]})
    after = score_folder(job)
    assert after.computed == 4
    np.testing.assert_allclose(joined(after)[1], difficulty.score("rmd", changed, labels).values, atol=1e-5)
    assert not np.allclose(joined(after)[1][100:], before[100:], atol=1e-3)


@pytest.mark.parametrize("labels", ["predicted", "min"])
def test_distances_to_other_classes_than_the_labels(folder, labels):
    where, rows, given, _ = folder
    summary = score_folder(FolderScoring(where / "in", where / "out", engine="local", labels=labels))
    expected = difficulty.fit("rmd", rows, given).score(rows, labels).values
    np.testing.assert_allclose(joined(summary)[1], expected, atol=1e-4)


@pytest.fixture
def cluster():
    ray = pytest.importorskip("ray", reason="engine 'ray' needs the extra confide[ray]")
    ray.init(num_cpus=2, include_dashboard=False, log_to_driver=False)
    yield
    ray.shutdown()


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
def test_two_ray_workers_give_the_same_numbers(folder, cluster, tmp_path):
    where, rows, labels, ids = folder
    summary = score_folder(FolderScoring(where / "in", where / "out", engine="ray", workers=2))
    found, values = joined(summary)
    np.testing.assert_array_equal(found, ids)
    # Rows of float32 are rounded to 1e-6 a column; those of float64 come out the same.
    np.testing.assert_allclose(values, difficulty.score("rmd", rows, labels).values, atol=1e-6 * 12, rtol=0)
    wide = rows.astype(np.float64)
    formats.write_table(tmp_path / "wide" / "0.parquet", {"label": labels[:300], "features": wide[:300]})
    formats.write_table(tmp_path / "wide" / "1.parquet", {"label": labels[300:], "features": wide[300:]})
    summary = score_folder(FolderScoring(tmp_path / "wide", tmp_path / "out", engine="ray", workers=2))
    np.testing.assert_allclose(joined(summary)[1], difficulty.score("rmd", wide, labels).values, atol=1e-6, rtol=0)
    # From images: features, moments and scores, all three as jobs; then again, with one part missing.
    images = (rows[:600].reshape(600, 1, 3, 4) * 10 + 128).clip(0, 255).astype(np.uint8)
    for k in range(3):
        part = slice(200 * k, 200 * k + 200)
        pictures = np.array([encoded(image) for image in images[part]], dtype=object)
        formats.write_table(tmp_path / "images" / f"{k}.parquet", {"label": labels[part], "image": pictures})
    job = FolderScoring(tmp_path / "images", tmp_path / "made", features="pixels", engine="ray", workers=2)
    first = score_folder(job)
    expected = difficulty.score("rmd", images.reshape(600, 12).astype(np.float32) / 255, labels[:600]).values
    np.testing.assert_allclose(joined(first)[1], expected, atol=1e-6 * 12, rtol=0)
    (first.scores / "1.parquet").unlink()
    assert score_folder(job).computed == 1
    (where / "in" / "part-0.parquet").write_bytes(b"PAR1 no")
    with pytest.raises(InputError, match=r"part-0\.parquet"):
        score_folder(FolderScoring(where / "in", where / "broken", engine="ray", workers=2))


def encoded(image):
    """PNG bytes of a grey image."""
    stream = io.BytesIO()
    Image.fromarray(image[0]).save(stream, "png")
    return stream.getvalue()
