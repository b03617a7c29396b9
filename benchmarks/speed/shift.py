"""Corruptions against imagecorruptions on the CPU, and the whole grid with a ResNet-18 on a GPU.

    OMP_NUM_THREADS=1 python -m benchmarks.speed.shift cpu [--images 20]
    OMP_NUM_THREADS=1 python -m benchmarks.speed.shift agree
    python -m benchmarks.speed.shift gpu --data CIFAR10_FOLDER [--images 10000] [--run FOLDER]

cpu: CPU seconds of one thread, both on the same images (224 and 32 pixels) with the parameters for 224 pixels, one
after the other in one process; corruptions that do not run in one of them are named and left out of the sums.
agree: how far both are from the clean image and from each other, in levels of 255.
gpu: all 16 x 5 corruptions of the test images and a forward pass of each, through the grid; beside it the seconds of
each corruption alone, and with a model of `confide train` (--run) its accuracy on stylised, grey and drawn images.
"""

from __future__ import annotations

import argparse
import time
import warnings
from typing import Any

import numpy as np
import torch

from confide import shift
from confide.checks import InputError


def photographs(n: int, side: int) -> np.ndarray:
    """uint8 `n side side 3`: smooth colours, edges and a little texture."""
    random = np.random.default_rng(0)
    y, x = np.mgrid[0:side, 0:side] / side
    images = np.empty((n, side, side, 3))
    for image in images:
        image[:] = random.uniform(0.2, 0.8, 3) + random.uniform(-0.4, 0.4, 3) * (x - 0.5)[..., None]
        image[(y - 0.5) ** 2 + (x - 0.5) ** 2 < random.uniform(0.02, 0.15)] = random.uniform(0, 1, 3)
    images += random.normal(0, 0.02, images.shape)
    return (images.clip(0, 1) * 255).astype(np.uint8)


def mend_imagecorruptions() -> None:
    """It uses words of old versions, `multichannel` of scikit-image and `float_` of numpy; so that all of it runs."""
    np.float_ = np.float64  # type: ignore[attr-defined]
    from imagecorruptions import corruptions

    smooth = corruptions.gaussian

    def gaussian(image: Any, *sizes: Any, multichannel: bool = False, **more: Any) -> Any:
        return smooth(image, *sizes, channel_axis=-1 if multichannel else None, **more)

    corruptions.gaussian = gaussian


def theirs(images: np.ndarray, word: str, severity: int) -> float:
    """CPU seconds per image of imagecorruptions."""
    from imagecorruptions import corrupt

    began = time.process_time()
    for image in images:
        corrupt(image, corruption_name=word, severity=severity)
    return (time.process_time() - began) / len(images)


def ours(images: np.ndarray, word: str, severity: int) -> float:
    """CPU seconds per image of confide."""
    batch = torch.from_numpy(np.ascontiguousarray(images.transpose(0, 3, 1, 2)))
    began = time.process_time()
    shift.corrupt(batch, word, severity, ids=np.arange(len(batch)), form="224")
    return (time.process_time() - began) / len(images)


def compare(side: int, count: int) -> None:
    """A table of milliseconds per image, mean over the severities 1, 3 and 5, and the ratio of the sums."""
    images, sums, left_out = photographs(count, side), [0.0, 0.0], []
    print(f"\n{side} x {side} pixels, {count} images, ms of CPU per image, mean of severities 1, 3, 5\n")
    print("| corruption | imagecorruptions | confide | ratio |\n|---|---|---|---|")
    for word in shift.names("corruptions19"):
        try:
            few = images[: max(3, count // 5)]
            ours(few, word, 1), theirs(few[:1], word, 1)
            pairs = [(theirs(few, word, s), ours(images, word, s)) for s in (1, 3, 5)]
        except InputError as error:
            left_out.append(f"{word} (confide: {error})")
            continue
        except Exception as error:
            left_out.append(f"{word} (imagecorruptions: {type(error).__name__}: {str(error)[:70]})")
            continue
        peer, own = (1000 * float(np.mean([pair[k] for pair in pairs])) for k in (0, 1))
        sums[0], sums[1] = sums[0] + peer, sums[1] + own
        print(f"| {word} | {peer:.2f} | {own:.2f} | {peer / own:.1f} |")
    print(f"| **sum** | {sums[0]:.2f} | {sums[1]:.2f} | **{sums[0] / sums[1]:.1f}** |")
    for line in left_out:
        print(f"left out: {line}")


def agree(count: int) -> None:
    """Distance of both to the clean image (root mean square) and to each other (mean), severities 1, 3 and 5."""
    from imagecorruptions import corrupt

    images = photographs(count, 224)
    batch = np.ascontiguousarray(images.transpose(0, 3, 1, 2))
    print("| corruption | severity | imagecorruptions to clean | confide to clean | apart |\n|---|---|---|---|---|")
    for word in shift.names("corruptions19"):
        for severity in (1, 3, 5):
            own = shift.corrupt(batch, word, severity, ids=np.arange(count)).transpose(0, 2, 3, 1).astype(float)
            peer = np.stack([corrupt(image, corruption_name=word, severity=severity) for image in images]).astype(float)
            far = [float(np.sqrt(((corrupted - images) ** 2).mean())) for corrupted in (peer, own)]
            print(f"| {word} | {severity} | {far[0]:.1f} | {far[1]:.1f} | {np.abs(own - peer).mean():.2f} |")


def on_gpu(args: argparse.Namespace) -> None:
    """Seconds of the grid on the device, of every corruption alone, and what the other domains cost a trained model."""
    from confide.data import load_dataset
    from confide.evaluation import Subject, shift_grid

    device = torch.device(args.device)
    test = load_dataset(args.data).test
    test = test.take(np.arange(min(args.images, len(test))))
    forward = trained_forward(args) if args.run else untrained_forward(device)
    few = test.take(np.arange(min(64, len(test))))
    quick: dict[str, Any] = {"device": device, "intervals": False, "batch_size": args.batch_size}
    # Kernels are loaded and tuned before the clock runs.
    forward(torch.zeros((args.batch_size, *np.shape(test.inputs)[1:]), dtype=torch.uint8, device=device))
    shift_grid(few, {"warm": Subject(forward)}, severities=(1,), **quick)
    began = time.perf_counter()
    evaluation = shift_grid(test, {"model": Subject(forward)}, **quick)
    seconds = time.perf_counter() - began
    name = torch.cuda.get_device_name() if device.type == "cuda" else args.device
    print(f"grid of 16 x 5 cells, {len(test)} images, ResNet-18: {seconds:.1f} s in all on {name} (asked: 60)")
    corruptions_alone(test, device)
    if args.run:
        clean, spoilt = evaluation.value("accuracy"), evaluation.value("accuracy", group="shift=mean")
        print(f"accuracy {clean:.4f} clean, {spoilt:.4f} in the grid")
        moved = shift_grid(test, {"model": Subject(forward)}, words="domain", **quick)
        for word in shift.names("domain"):
            values = [moved.value("accuracy", group=f"shift={word}/{s}") for s in shift.SEVERITIES]
            lost = 100 * (clean - min(values))
            print(
                f"{word}: {', '.join(f'{v:.4f}' for v in values)} at severities 1 to 5; {lost:.1f} points lost at most"
            )


def untrained_forward(device: torch.device) -> Any:
    """A ResNet-18 with random weights: as fast as a trained one."""
    from confide.models import create

    network = create("resnet18", (3, 32, 32), 10).to(device).to(memory_format=torch.channels_last).eval()  # type: ignore[call-overload]

    def forward(images: torch.Tensor) -> Any:
        with torch.no_grad(), torch.autocast(device.type, dtype=torch.bfloat16):
            values = images.float().div_(255).sub_(0.47).div_(0.25).contiguous(memory_format=torch.channels_last)
            return network(values).float(), None

    return forward


def trained_forward(args: argparse.Namespace) -> Any:
    """A model of `confide train`."""
    from confide.robustness import ModelOnDevice
    from confide.training import Trained

    runner = ModelOnDevice.of(Trained.load(args.run), args.device)

    def forward(images: torch.Tensor) -> Any:
        with torch.no_grad():
            return runner.forward(images)

    return forward


def corruptions_alone(test: Any, device: torch.device) -> None:
    """Seconds of each corruption without the model, all five severities."""
    images = torch.from_numpy(np.ascontiguousarray(test.inputs)).to(device)
    total = 0.0
    for word in shift.names("corruptions19"):
        shift.corrupt(images[:64], word, 1, ids=test.ids[:64])
        if device.type == "cuda":
            torch.cuda.synchronize()
        began = time.perf_counter()
        for severity in shift.SEVERITIES:
            shift.corrupt(images, word, severity, ids=test.ids)
        if device.type == "cuda":
            torch.cuda.synchronize()
        seconds = time.perf_counter() - began
        total += seconds
        print(f"{word:18} {seconds:7.2f} s for 5 severities")
    print(f"{'all 19':18} {total:7.2f} s", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=("cpu", "agree", "gpu"))
    parser.add_argument("--images", type=int, default=0, help="20 (cpu), 6 (agree), 10000 (gpu)")
    parser.add_argument("--data", default="cifar10", help="gpu: CIFAR-10 folder or word")
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--batch-size", type=int, default=5000)
    parser.add_argument("--run", default=None, help="gpu: folder of a trained model instead of random weights")
    args = parser.parse_args()
    if args.what == "gpu":
        args.images = args.images or 10_000
        on_gpu(args)
        return
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    mend_imagecorruptions()
    if args.what == "agree":
        agree(args.images or 6)
        return
    for side in (224, 32):
        compare(side, args.images or 20)


if __name__ == "__main__":
    main()
