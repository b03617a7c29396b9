"""Runs one function over many items: one after the other here, or as a Ray Data job on any number of machines."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from typing import Any

from confide.core.door import InputError, check_choice
from confide.core.progress import Progress
from confide.scale.ray import connect


def run_all(
    function: Callable[[Any], None], items: Sequence[Any], *, engine: str, workers: int, what: str, gpu: bool = False
) -> None:
    """Call `function` on every item; it writes its own result, so a stopped job goes on with what is missing.

    Args:
        engine: "local", or "ray" for a Ray Data job (the cluster of RAY_ADDRESS, or one started here).
        workers: tasks at a time on Ray.
        gpu: each task takes a GPU of the cluster, where it has any.
    """
    check_choice(engine, ("local", "ray"), "engine")
    if not items:
        return
    if engine == "local":
        with Progress(what, len(items)) as progress:
            for item in items:
                function(item)
                progress.step()
        return
    _run_ray(function, items, workers, what, gpu)


def _run_ray(function: Callable[[Any], None], items: Sequence[Any], workers: int, what: str, gpu: bool) -> None:
    ray = connect(workers)
    from ray import data as ray_data

    # Our own line of progress says enough; Ray's would be many.
    logging.getLogger("ray.data").setLevel(logging.WARNING)
    ray_data.DataContext.get_current().enable_progress_bars = False

    def task(row: dict[str, Any]) -> dict[str, Any]:
        try:
            function(items[int(row["place"])])
        except InputError as error:
            return {"place": row["place"], "error": str(error)}
        return {"place": row["place"], "error": ""}

    places = [{"place": i} for i in range(len(items))]
    # One block per item: Ray gives each to a free worker and repeats it elsewhere when a machine is lost.
    pool = ray_data.TaskPoolStrategy(size=min(workers, len(places)))
    resources = {"num_gpus": 1} if gpu and ray.cluster_resources().get("GPU", 0) >= 1 else {}
    data = ray_data.from_items(places, override_num_blocks=len(places)).map(task, compute=pool, **resources)
    failed = []
    with Progress(what, len(items)) as progress:
        for row in data.iter_rows():
            failed += [row["error"]] if row["error"] else []
            progress.step()
    if failed:
        raise InputError(f"{failed[0]} ({len(failed)} of {len(items)} parts failed; the rest is kept, run it again)")
