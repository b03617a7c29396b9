import numpy as np
import pytest
import torch

from confide import difficulty
from confide.checks import InputError


def feed(recorder, probs, *, members_first=False, batch=16):
    """Probabilities [member, epoch, n, c] as a training loop would give them, in shuffled batches."""
    draw = np.random.default_rng(0)
    turns = [(m, e) for e in range(probs.shape[1]) for m in range(probs.shape[0])]
    for member, epoch in sorted(turns) if members_first else turns:
        order = draw.permutation(probs.shape[2])
        for start in range(0, len(order), batch):
            rows = order[start : start + batch]
            recorder.record(epoch, recorder.ids[rows], probs[member, epoch, rows], member=member)


@pytest.fixture
def training(golden):
    inputs = golden("inputs_G")
    ids = np.array([f"s{i}" for i in range(inputs["probs"].shape[2])])
    return inputs["probs"], inputs["labels"], ids


@pytest.mark.parametrize("where", ["folder", "running"])
@pytest.mark.parametrize("word", ["confusion", "entropy", "correctness", "loss"])
def test_recorded_scores_are_those_of_the_whole_array(training, tmp_path, where, word):
    probs, labels, ids = training
    folder = tmp_path / "log" if where == "folder" else None
    recorder = difficulty.Recorder(ids, labels, folder=folder, members=3, kind="probs", dtype="float32")
    feed(recorder, probs, members_first=where == "folder")
    scores = difficulty.score(word, recorder)
    np.testing.assert_allclose(scores.values, difficulty.score(word, probs, labels).values, rtol=1e-5, atol=1e-6)
    np.testing.assert_array_equal(scores.ids, ids)


def test_half_precision_shards_are_close_and_small(training, tmp_path):
    probs, labels, ids = training
    recorder = difficulty.Recorder(ids, labels, folder=tmp_path, members=3, kind="probs")
    feed(recorder, probs)
    np.testing.assert_allclose(
        difficulty.score("confusion", recorder).values, difficulty.score("confusion", probs).values, rtol=2e-3
    )
    shard = next(tmp_path.glob("member-000/epoch-*.npy"))
    assert np.load(shard).dtype == np.float16
    assert len(list(tmp_path.glob("member-*/epoch-*.npy"))) == 12


def test_any_subset_of_epochs_and_members_afterwards(training, tmp_path):
    probs, labels, ids = training
    recorder = difficulty.Recorder(ids, labels, folder=tmp_path, members=3, kind="probs", dtype="float32")
    feed(recorder, probs)
    log = difficulty.open_log(tmp_path)
    some = difficulty.score("confusion", log, epochs=(1, 3), members=(0, 2))
    mean = probs[[0, 2]][:, [1, 3]].mean(axis=0)
    np.testing.assert_allclose(some.values, -(mean * np.log(mean)).sum(axis=2).mean(axis=0), rtol=1e-5)


def test_logits_are_recorded_as_probabilities():
    logits = torch.randn(10, 3, generator=torch.Generator().manual_seed(0))
    recorder = difficulty.Recorder(np.arange(10), dtype="float32")
    recorder.record(0, np.arange(10), logits)
    probs = torch.softmax(logits, dim=1).numpy()
    np.testing.assert_allclose(
        difficulty.score("entropy", recorder).values, difficulty.score("entropy", probs).values, rtol=1e-5
    )


def test_a_stopped_training_goes_on_in_its_folder(training, tmp_path):
    probs, labels, ids = training
    first = difficulty.Recorder(ids, labels, folder=tmp_path, kind="probs", dtype="float32")
    feed(first, probs[:1, :2])
    first.record(2, ids[:5], probs[0, 2, :5])  # killed in the middle of epoch 2
    again = difficulty.Recorder(ids, labels, folder=tmp_path, kind="probs", dtype="float32")
    for epoch in (2, 3):
        again.record(epoch, ids, probs[0, epoch])
    np.testing.assert_allclose(
        difficulty.score("confusion", again).values, difficulty.score("confusion", probs[0]).values, rtol=1e-5
    )


def test_running_statistics_do_not_grow_with_epochs():
    recorder = difficulty.Recorder(np.arange(4), np.zeros(4, dtype=int))
    for epoch in range(50):
        recorder.record(epoch, np.arange(4), np.zeros((4, 3)))
    arrays = [v for v in vars(recorder._running).values() if isinstance(v, np.ndarray)]
    assert sum(a.size for a in arrays) <= 8 * 4 * 3
    np.testing.assert_allclose(difficulty.score("confusion", recorder).values, np.log(3), rtol=1e-3)


def test_wrong_ids_get_one_line_and_nothing_is_lost(training, tmp_path):
    probs, labels, ids = training
    recorder = difficulty.Recorder(ids, labels, folder=tmp_path, kind="probs")
    recorder.record(0, ids, probs[0, 0])
    with pytest.raises(InputError, match="the recorder must have every id asked for, but 1 of 2 are missing"):
        recorder.record(1, ["s0", "stranger"], probs[0, 1, :2])
    assert difficulty.score("entropy", recorder).values.shape == (40,)


def test_an_epoch_with_missing_samples_names_the_first(training):
    probs, labels, ids = training
    recorder = difficulty.Recorder(ids, labels, kind="probs")
    recorder.record(0, ids[:30], probs[0, 0, :30])
    with pytest.raises(InputError, match="but 10 of 40 are missing, first 's30'; record them before"):
        recorder.record(1, ids, probs[0, 1])


def test_members_out_of_turn_need_a_folder(training):
    probs, labels, ids = training
    recorder = difficulty.Recorder(ids, labels, members=2, kind="probs")
    recorder.record(0, ids, probs[0, 0])
    with pytest.raises(InputError, match="record to a folder instead"):
        recorder.record(1, ids, probs[0, 1])


def test_running_statistics_refuse_subsets(training):
    probs, labels, ids = training
    recorder = difficulty.Recorder(ids, labels, kind="probs")
    feed(recorder, probs[:1])
    with pytest.raises(InputError, match="needs every probability"):
        difficulty.score("confusion", recorder, epochs=(0, 1))


def test_other_samples_in_the_same_folder_are_refused(training, tmp_path):
    _, labels, ids = training
    difficulty.Recorder(ids, labels, folder=tmp_path)
    with pytest.raises(InputError, match="recorded for other samples"):
        difficulty.Recorder(ids[::-1], labels, folder=tmp_path)


def test_probabilities_are_not_taken_for_logits(training):
    _, labels, ids = training
    recorder = difficulty.Recorder(ids, labels, kind="probs")
    with pytest.raises(InputError, match="are these logits"):
        recorder.record(0, ids, np.full((40, 7), 3.0))


def test_an_empty_recorder_says_so():
    with pytest.raises(InputError, match="at least one epoch"):
        difficulty.score("confusion", difficulty.Recorder(np.arange(3)))


@pytest.mark.parametrize("shape", [(4,), (4, 1), (4, 2, 1), ()])
@pytest.mark.parametrize("kind", ["probs", "logits"])
def test_only_rows_of_two_classes_or_more_are_recorded(shape, kind):
    recorder = difficulty.Recorder(np.arange(4), np.zeros(4, int), kind=kind)
    with pytest.raises(InputError, match="must be n x c with at least two classes"):
        recorder.record(0, np.arange(4), np.ones(shape))
