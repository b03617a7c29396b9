"""`confide dense FILE`: predictions of pixels from segmented images, and of boxes from a detector."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

from confide.cli.shared import print_json, refuse_flags, warnings_on_stderr

if TYPE_CHECKING:
    from confide.types import Options

EXAMPLE = (
    "  confide dense images.npz --boundary 2 8 --most 5000 --out pixels.parquet\n"
    "  confide dense folder_of_npz/ --ignore-index 255 --out pixels.parquet\n"
    "  confide dense detections.json --truth annotations.json --iou 0.5 --out boxes.parquet"
)


def configure(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add(
        "source",
        metavar="FILE",
        help="npz with logits n c h w and labels n h w, a folder of npz of an image each, or JSON",
    )
    add("-o", "--out", required=True, metavar="FILE", help="the predictions: .parquet, .npz")
    add("--ignore-index", type=int, default=255, help="label of pixels that do not count (default: 255)")
    add("--boundary", nargs="+", type=float, metavar="PX", help="edges of bands of distance to a label boundary")
    add("--most", type=int, metavar="N", help="pixels of an image to keep at most (default: all)")
    add("--seed", type=int, default=0, help="of the pixels that are kept (default: 0)")
    add("--truth", metavar="FILE", help="FILE holds boxes found (COCO results); these are the true ones (annotations)")
    add("--iou", type=float, default=0.5, help="overlap from which a box counts as found (default: 0.5)")
    add("--split", help="train, val or test")


def run(args: argparse.Namespace) -> None:
    from confide import InputError, dense

    with warnings_on_stderr():
        if args.truth:
            refuse_flags(args, ("boundary", "most"), "--truth reads boxes")
            predictions = dense.from_coco(args.source, args.truth, iou=args.iou, split=args.split)
        elif Path(args.source).suffix == ".json":
            raise InputError(f"boxes of {args.source} need the true ones; give --truth FILE, annotations as in COCO")
        else:
            outputs, labels, kind = dense.read_images(args.source)
            images: Options = {kind: outputs, "labels": labels}
            predictions = dense.pixels(
                **images,
                ignore_index=args.ignore_index,
                boundary=args.boundary,
                most=args.most,
                seed=args.seed,
                split=args.split,
            )
    predictions.save(Path(args.out))
    if args.json:
        print_json({"rows": len(predictions), "columns": list(predictions.columns), "files": [args.out]})
        return
    print(f"{predictions!r}\npredictions: {args.out}\nnext: confide evaluate {args.out}")
