"""Two processes train as one: the same numbers to float tolerance, resumable, for losses that look at the batch."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import textwrap
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from torch.testing import assert_close

from confide.data import load_dataset
from confide.records import Dataset, Scores
from confide.training import Settings, Trained, distributed, fit, predict
from confide.training.distributed import World, with_shared_batch_norms

LOSSES: dict[str, dict[str, Any]] = {
    "cross_entropy": {},
    "adafocal": {"bins": 5},
    "selective_au": {"accumulate": True},
    "crl": {},
    "mmce": {},
    "group_dro": {"num_groups": 2},
    "adaptive_difficulty": {"num_groups": 3, "start": 0.05},
}
BASE: dict[str, Any] = {"epochs": 2, "batch_size": 50, "model_options": {"width": 4, "hidden": 8}, "device": "cpu"}

DRIVER = """
    import sys
    sys.path.insert(0, {here!r})
    import numpy as np
    import torch
    torch.set_num_threads(1)
    import torch.distributed as dist
    from conftest import make_dataset
    from confide.progress import Progress
    from confide.records import Scores
    from confide.training import Settings, checkpoint, fit
    Progress.quiet = True
    dist.init_process_group("gloo")
    data = make_dataset()
    ids = np.concatenate([data.train.ids, data.val.ids])
    scores = Scores(ids, np.linspace(-1, 3, len(ids)), "rmd")
    for loss, options in {losses!r}.items():
        settings = Settings(**{base!r}, loss=loss, loss_options=options, augment="crop_flip",
                            average=float(loss == "adaptive_difficulty"))
        fit(data, settings, scores=scores, folder={out!r} + "/" + loss)
    settings = Settings(**{{**{base!r}, "model_options": {{"width": 4, "hidden": 8, "dropout": 0.4}}}}, loss="adafocal")
    fit(data, settings, folder={out!r} + "/unbroken")
    real, left = checkpoint.save_checkpoint, [6]
    def failing(*args):
        left[0] -= 1
        if left[0] < 0:
            raise OSError(28, "No space left on device")
        return real(*args)
    checkpoint.save_checkpoint = failing
    try:
        fit(data, settings, folder={out!r} + "/broken", checkpoint_seconds=0)
        raise SystemExit("the writing of a checkpoint should have failed")
    except OSError:
        checkpoint.save_checkpoint = real
    # How this process came by the model is not part of its file: a resumed training writes the same bytes.
    resumed = fit(data, settings, folder={out!r} + "/broken")
    assert resumed.process_notes[0].startswith("resumed at"), resumed.process_notes
    dist.destroy_process_group()
"""


def free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return int(listener.getsockname()[1])


def run_two(command: list[str], timeout: int = 240) -> list[str]:
    """Start the command twice, as ranks 0 and 1 of one world; returns what each wrote to stdout."""
    port = str(free_port())
    processes = []
    for rank in range(2):
        world = {"RANK": str(rank), "LOCAL_RANK": str(rank), "WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1"}
        env = {**os.environ, **world, "MASTER_PORT": port, "OMP_NUM_THREADS": "1", "CUDA_VISIBLE_DEVICES": ""}
        processes.append(subprocess.Popen(command, env=env, stdout=-1, stderr=-1, text=True))
    outputs = [process.communicate(timeout=timeout) for process in processes]
    assert all(process.returncode == 0 for process in processes), "\n".join(errors for _, errors in outputs)
    return [out for out, _ in outputs]


@pytest.mark.slow
def test_two_processes_equal_one(bars: Dataset, tmp_path: Path) -> None:
    here = str(Path(__file__).parent)
    code = textwrap.dedent(DRIVER).format(here=here, losses=LOSSES, base=BASE, out=str(tmp_path))
    run_two([sys.executable, "-c", code])
    ids = np.concatenate([bars.train.ids, bars.val.ids])
    scores = Scores(ids, np.linspace(-1, 3, len(ids)), "rmd")
    for loss, options in LOSSES.items():
        average = float(loss == "adaptive_difficulty")
        settings = Settings(**BASE, loss=loss, loss_options=options, augment="crop_flip", average=average)
        alone, together = fit(bars, settings, scores=scores), Trained.load(tmp_path / loss)
        for name, weights in alone.model.state_dict().items():
            # CRL's ranking term has a kink at 0, where the last bit of a confidence decides.
            close = 5e-3 if loss == "crl" else 1e-5
            assert_close(together.model.state_dict()[name], weights, rtol=close, atol=close, msg=f"{loss}: {name}")
        for name, values in alone.loss_state.items():
            assert_close(
                together.loss_state[name].double(), values.double(), rtol=1e-3, atol=1e-3, msg=f"{loss} {name}"
            )
        assert_close(torch.tensor(together.log["train_loss"]), torch.tensor(alone.log["train_loss"]), rtol=1e-4, atol=0)
    unbroken, broken = Trained.load(tmp_path / "unbroken"), Trained.load(tmp_path / "broken")
    for name, weights in unbroken.model.state_dict().items():
        assert torch.equal(weights, broken.model.state_dict()[name]), name
    assert (unbroken.log["val_nll"] == broken.log["val_nll"]).all()


TWICE = """
    import sys
    sys.path.insert(0, {here!r})
    import torch
    torch.set_num_threads(1)
    from conftest import make_dataset
    from confide.progress import Progress
    from confide.training import Settings, fit_members
    Progress.quiet = True
    fit_members(make_dataset(), Settings(**{base!r}), members=2, folder={out!r})
"""


@pytest.mark.slow
def test_torchrun_trains_one_member_after_another(bars: Dataset, tmp_path: Path) -> None:
    # torchrun keeps one store for all trainings of its processes: the second must not find the keys of the first.
    script = tmp_path / "twice.py"
    code = TWICE.format(here=str(Path(__file__).parent), base=BASE, out=str(tmp_path / "ensemble"))
    script.write_text(textwrap.dedent(code))
    torchrun = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", "2", "--master-port"]
    env = {**os.environ, "OMP_NUM_THREADS": "1", "CUDA_VISIBLE_DEVICES": ""}
    subprocess.run([*torchrun, str(free_port()), str(script)], env=env, check=True, timeout=120, capture_output=True)
    for number in range(2):
        alone = fit(bars, Settings(**BASE, seed=number))
        together = Trained.load(tmp_path / "ensemble" / f"member-{number}")
        assert_close(torch.tensor(together.log["train_loss"]), torch.tensor(alone.log["train_loss"]), rtol=1e-4, atol=0)


REAL = """
    import sys
    from dataclasses import replace
    import torch
    torch.set_num_threads(1)
    from confide.progress import Progress
    from confide.records import Dataset, Split
    from confide.data import load_dataset
    from confide.training import Settings, fit
    from confide.models.device import Device
    from confide.models.preparation import Feed
    Progress.quiet = True
    data, settings, out = load_dataset("fashion-sample"), Settings(epochs=1, device="cpu"), sys.argv[1]
    train = Split(data.train.inputs[:128], data.train.labels[:128], data.train.ids[:128])
    fit(replace(data, splits={**data.splits, "train": train}), settings, folder=out + "/step")
    fit(data, settings, folder=out + "/epoch")
    place, prepare = Device.place, Feed._prepare
    Device.place = lambda self, model: place(self, model).double()
    Feed._prepare = lambda *given: prepare(*given).double()
    fit(data, settings, folder=out + "/float64")
"""


@pytest.mark.slow
def test_two_processes_equal_one_on_real_images(tmp_path: Path) -> None:
    script = tmp_path / "real.py"
    script.write_text(textwrap.dedent(REAL))
    torchrun = ["-m", "torch.distributed.run", "--nproc-per-node", "2", "--master-port", str(free_port())]
    env = {**os.environ, "OMP_NUM_THREADS": "1", "CUDA_VISIBLE_DEVICES": ""}
    for launcher, where in (([], "one"), (torchrun, "two")):
        command = [sys.executable, *launcher, str(script), str(tmp_path / where)]
        subprocess.run(command, env=env, check=True, timeout=240, capture_output=True)
    # A step is the same to float32 (4e-7 was seen). Over an epoch rounding turns some of the millions of ReLUs on or
    # off, as another number of threads does; in float64, where it does not, the whole epoch is the same.
    for name, close in (("step", 1e-5), ("float64", 1e-6)):
        alone, together = Trained.load(tmp_path / "one" / name), Trained.load(tmp_path / "two" / name)
        for key, weights in alone.model.state_dict().items():
            atol = close * float(weights.abs().max())
            assert_close(together.model.state_dict()[key], weights, rtol=0, atol=atol, msg=f"{name}: {key}")
        for key, values in alone.log.items():
            assert together.log[key] == pytest.approx(values, rel=close), f"{name}: {key}"
        said = [predict(trained, load_dataset("fashion-sample"), "val").logits for trained in (alone, together)]
        assert_close(said[1], said[0], rtol=0, atol=close * float(said[0].abs().max()))
    alone, together = (Trained.load(tmp_path / where / "epoch") for where in ("one", "two"))
    assert together.log["train_loss"] == pytest.approx(alone.log["train_loss"], rel=0.03)


def test_batch_norms_that_activate_are_converted_by_their_own_library(monkeypatch: pytest.MonkeyPatch) -> None:
    plain = torch.nn.Sequential(torch.nn.Conv2d(1, 2, 3), torch.nn.BatchNorm2d(2))
    assert isinstance(with_shared_batch_norms(plain)[1], torch.nn.SyncBatchNorm)

    class NormAct(torch.nn.BatchNorm2d):
        """Its forward ends in an activation, which torch's conversion would drop."""

    asked = []
    NormAct.__module__ = "timm.layers.norm_act"
    layers = SimpleNamespace(convert_sync_batchnorm=lambda model: asked.append(model) or model)
    monkeypatch.setitem(sys.modules, "timm", SimpleNamespace(layers=layers))
    monkeypatch.setitem(sys.modules, "timm.layers", layers)
    model = torch.nn.Sequential(torch.nn.Conv2d(1, 2, 3), NormAct(2))
    assert with_shared_batch_norms(model) is model
    assert asked == [model]


def test_slices_cover_every_sample_once() -> None:
    for n in (1, 7, 50, 51):
        for size in (1, 2, 3, 8):
            taken = np.concatenate([np.arange(n)[World(rank, size).own(n)] for rank in range(size)])
            assert (taken == np.arange(n)).all()


@pytest.mark.parametrize("rank", [0, 1, 2])
def test_rows_of_unequal_parts_come_back_in_order(rank, monkeypatch):
    """Seven rows of three processes, two, two and three of them, of which the longest part sets what is sent."""
    rows = torch.arange(14.0).reshape(7, 2)
    worlds = [World(k, 3) for k in range(3)]

    def all_gather(parts, own):
        for part, world in zip(parts, worlds, strict=True):
            part.zero_()
            part[: len(rows[world.own(7)])] = rows[world.own(7)]
        assert torch.equal(parts[rank], own)

    monkeypatch.setattr(distributed.dist, "all_gather", all_gather)
    own = rows[worlds[rank].own(7)].clone().requires_grad_()
    whole = worlds[rank].gather(own, 7)
    assert torch.equal(whole, rows)
    whole.sum().backward()
    assert torch.equal(own.grad, torch.ones_like(own))


def test_processes_agree_on_the_wish_of_the_first(monkeypatch):
    asked = []

    def broadcast(word, source):
        asked.append((bool(word), source))
        word.fill_(1.0)

    monkeypatch.setattr(distributed.dist, "broadcast", broadcast)
    assert World(1, 2).agree(False, torch.device("cpu"))
    assert asked == [(False, 0)]
    assert not World(0, 1).agree(False, torch.device("cpu"))
