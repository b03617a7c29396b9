"""The tables of the findings are those that the kept results make."""

from pathlib import Path

from benchmarks.findings import write
from benchmarks.lib.grid import method_named

ROOT = Path(__file__).parents[2]


def test_every_table_is_made_from_what_is_kept():
    page = (ROOT / "benchmarks" / "results" / "findings.md").read_text(encoding="utf-8")
    for name, make in (
        ("trials", write.trials_table),
        ("rule", write.rule_text),
        ("seeds", write.seeds_table),
        ("by-band", write.by_band_table),
        ("embedded", lambda: write.embedded.table(write.FINDINGS / "embedded.jsonl")),
        ("folds", lambda: write.folds.table(write.files.read_json(write.FINDINGS / "folds.json")["folds"])),
        ("confusion", write.confusion_table),
        ("errors", write.errors_table),
    ):
        assert write.filled(page, name, make()) == page
    assert "`cross_entropy_average1` | 0 | 92.02" in page


def test_a_table_is_put_between_its_marks_and_an_empty_one_is_not():
    page = "a\n<!-- table x -->\nold\n<!-- end -->\nb\n<!-- table y -->\n<!-- end -->\n"
    assert write.filled(page, "x", "| new |") == page.replace("old", "| new |")
    assert write.filled(page, "x", "") == page
    assert write.filled(page, "z", "| new |") == page


def test_cells_of_a_grid_become_a_row_per_method_and_stage(tmp_path):
    import json

    from benchmarks.findings.cells import cell_tables, read_cells

    (tmp_path / "cells").mkdir()
    numbers = {"accuracy": 0.9, "ece_mass": 0.01, "nll": 0.3, "aurc": 0.01, "auroc": 0.9}
    for seed, p in ((0, 0.5), (1, 0.01)):
        cell = {"dataset": "cifar10", "model": "resnet18", "seed": seed, "method": {"name": "adafocal"}}
        stages = {stage: {**numbers, "calibration_p": p} for stage in ("raw", "temperature")}
        file = {"cell": cell, "method": {"calibrator": "temperature"}, "measured": stages, "strength": None}
        (tmp_path / "cells" / f"{seed}.json").write_text(json.dumps(file), encoding="utf-8")
    tables = cell_tables(read_cells(tmp_path))
    assert tables["cells-dual"] == ""
    assert "| `adafocal` | raw | 2 | 90.00 ± 0.00 | 1.00 ± 0.00 | 0.3000" in tables["cells-adafocal"]
    assert tables["cells-adafocal"].endswith("| 1 of 2 |")


def test_official_images_stand_beside_the_test_images_where_they_were_measured():
    from benchmarks.findings.cells import resampled_table

    def cell(here: float, there: float) -> dict:
        stages = [
            {stage: {"accuracy": value, "ece_mass": 1 - value} for stage in ("raw", "temperature")}
            for value in (here, there)
        ]
        return {"measured": stages[0], "resampled": stages[1]}

    without = {"measured": cell(0.5, 0.0)["measured"]}
    table = resampled_table({"focal": {0: cell(0.4, 0.3), 1: cell(0.6, 0.3)}, "brier": {0: without}})
    assert "| `focal` | 2 | 50.00 ± 14.14 | 30.00 ± 0.00 | 50.00 ± 14.14 | 70.00 ± 0.00 |" in table
    assert "brier" not in table
    assert resampled_table({"brier": {0: without}}) == ""


def test_the_rule_reads_the_third_round_and_what_averages_nothing():
    from benchmarks.findings import rule

    rows, losses = write.kept_rows()
    assert set(rule.banded_losses()) == {name for name in rows if name[0] != 2}  # of the second no logits are left
    assert {turn for turn, _ in rows} == {1, 2, 3}
    assert set(rows) == set(losses)
    text = write.rule_text()
    assert "`cross_entropy` (round 1)" in text
    assert "(round 2)" not in text  # averaged weights with the statistics of others
    assert text.count("accuracy with `entropy_017_mean` (round 3).") == 2  # with one training each, and over the seeds
    first = method_named("confide")  # so it was the first recipe, with the calibrator that the table by band names
    assert (first.loss, first.options) == ("entropy_regularization", {"alpha": 0.17})
    assert first.calibrated == {"word": "temperature", "by": "difficulty", "bands": 5}


def test_the_rule_takes_means_where_every_seed_is_trained(monkeypatch):
    import numpy as np

    def trained(seed: int, nll: float, gap: float) -> tuple[dict, np.ndarray]:
        stages = {"temperature": {"nll": nll}, "none": {"accuracy": 0.9, "gap": gap}}
        return {"judge_mirror": stages, "settings": {"seed": seed, "average": 1.0}}, np.full(50, nll)

    # The steady loss is the better one over the seeds, though not with seed 0; the third has one seed alone.
    nlls = {"plain": [0.30] * 5, "steady": [0.31, *[0.27] * 4], "single": [0.2]}
    rows, losses = {}, {}
    for name, values in nlls.items():
        for seed, nll in enumerate(values):
            key = (3, f"{name}_seed{seed}" if seed else name)
            rows[key], losses[key] = trained(seed, nll, 0.02 if name == "plain" else 0.01)
    from benchmarks.findings import rule

    monkeypatch.setattr(rule, "kept_rows", lambda: (rows, {}))
    monkeypatch.setattr(rule, "banded_losses", lambda: losses)
    first, several = write.rule_text().split("\n\n")
    assert first.startswith("Lowest NLL: `single`")
    assert several.startswith(
        "Over 5 seeds: Lowest NLL: `steady` (round 3). Within two standard errors of it: `steady`"
    )
    # A difference that seeds do not share is no difference.
    for seed, nll in enumerate((0.31, 0.2, 0.4, 0.2, 0.38)):
        key = (3, f"steady_seed{seed}" if seed else "steady")
        rows[key], losses[key] = trained(seed, nll, 0.03)
    several = write.rule_text().split("\n\n")[1]
    assert "Lowest NLL: `steady`" in several
    assert several.endswith("accuracy with `plain` (round 3).")


def test_folds_hold_every_image_once_and_every_class_alike():
    import numpy as np

    labels = np.random.default_rng(1).integers(0, 7, 700)
    folds = write.folds.fold_of(labels)
    assert (folds == write.folds.fold_of(labels)).all()
    counts = np.stack([np.bincount(folds[labels == k], minlength=write.folds.FOLDS) for k in range(7)])
    assert (counts.max(axis=1) - counts.min(axis=1) <= 1).all()
    assert counts.sum() == len(labels)


def test_a_fold_s_network_is_calibrated_by_its_own_images_by_all_and_by_half(tmp_path, monkeypatch):
    import numpy as np

    monkeypatch.setattr(write.folds, "FOLDS", 2)
    rng = np.random.default_rng(0)
    for fold, sure in enumerate((3.0, 0.3)):  # one network is too sure, the other too shy
        columns = {}
        for split, n in (("val", 2000), ("test", 4000)):
            logits = rng.normal(size=(n, 4)).astype(np.float32) * 2
            columns[f"{split}_label"] = (logits + rng.gumbel(size=logits.shape)).argmax(axis=1)
            columns[f"{split}_logits"] = sure * logits
        write.files.write_table(write.folds.fold_file(tmp_path, fold), columns)
        hard = {"val": rng.normal(size=2000), "test": rng.normal(size=4000)}
        write.files.write_table(write.folds.fold_file(tmp_path, fold, "difficulty"), hard)
    rows = write.folds.compared(tmp_path)
    for row, sign in zip(rows, (1, -1), strict=True):
        assert sign * row["test"]["raw"]["gap"] > 0.05
        assert abs(row["test"]["own"]["gap"]) < 0.03
        assert all(abs(one["fold"]["gap"]) < 0.05 for one in row["halves"])
        assert sign * row["test"]["pooled"]["gap"] > 0.03  # between the two: right for neither
    table = write.folds.table(rows)
    assert "| test | none | " in table
    assert table.splitlines()[2].endswith("| 0 of 2 |")


def test_what_is_said_of_the_recipe_is_what_its_cells_hold():
    import numpy as np

    def mean(dataset: str, stage: str, word: str, place: str = "measured", method: str = "confide") -> float:
        paths = sorted((ROOT / "benchmarks/results/lite/cells").glob(f"{dataset}-resnet18-{method}-s*.json"))
        return float(np.mean([write.files.read_json(path)[place][stage][word] for path in paths]))

    page = (ROOT / "benchmarks" / "results" / "findings.md").read_text(encoding="utf-8")
    raw, banded = "raw", "temperature_by_difficulty"
    assert f"with every seed (ECE {100 * mean('cifar10', raw, 'ece_mass'):.2f} %;" in page
    others, _ = write.files.read_table(ROOT / "benchmarks/results/papers/by-difficulty.parquet")
    for name, words in (
        ("cross_entropy_averaged", "with an NLL of {} and an AURC of {:.2f}"),
        ("adaptive_difficulty_averaged", "with {} and {:.2f}"),
    ):
        at = others["method"] == name
        own = {
            word: float(others["mean"][at & (others["quantity"] == f"{word}, by difficulty")][0])
            for word in ("nll", "aurc")
        }
        assert own["nll"] < mean("cifar10", banded, "nll")
        assert own["aurc"] < 1000 * mean("cifar10", banded, "aurc")
        assert f"`{name}` {words.format(short(own['nll']), own['aurc'])}" in page
    names = ("label_smoothing", "confide")
    away = [f"{100 * mean('tiny32', raw, 'ece_mass', 'resampled', name):.1f}" for name in names]
    here = [f"{100 * mean('tiny32', raw, 'ece_mass', method=name):.1f}" for name in names]
    assert f"({' and '.join(away)} %), whose {' and '.join(here)} %" in page
    more = mean("tiny32", banded, "ece_mass") - mean("tiny32", "temperature", "ece_mass")
    assert f"higher by {100 * more:.1f} points, where one temperature stands the test" in page
    rows = write.files.read_json(write.FINDINGS / "folds.json")["folds"]
    halves = [one for row in rows for one in row["halves"]]
    passed = [sum(one[where]["calibration_p"] > 0.05 for one in halves) for where in ("fold", "test")]
    gaps = [100 * float(np.mean([row["test"][stage]["gap"] for row in rows])) for stage in ("own", "pooled")]
    gaps.insert(0, 100 * mean("cifar10", banded, "confidence_gap"))
    told = "{:.2f} points with the grid's own, {:.2f} over ten draws, {:.2f} with all 50,000".format(*gaps)
    assert told in page
    assert f"passes {passed[0]} of 20 halves, of as many test images {passed[1]} of 20" in page


def short(value: float) -> str:
    """.2479 for 0.24786."""
    return f"{value:.4f}"[1:]


def test_what_is_said_of_the_rounds_is_what_they_hold():
    import numpy as np

    rows, _ = write.kept_rows()
    page = (ROOT / "benchmarks" / "results" / "findings.md").read_text(encoding="utf-8")
    first = [row for (turn, _), row in rows.items() if turn == 1]
    words = {"temperature": "temperature", "ensemble_temperature": "ensemble temperature", "none": "none"}
    for word, name in (words | {"spline": "spline", "isotonic": "isotonic"}).items():
        assert f"{name} {short(np.mean([row['judge_mirror'][word]['nll'] for row in first]))}" in page

    def nll(turn: int, name: str) -> float:
        return rows[turn, name]["judge_mirror"]["temperature"]["nll"]

    # The statistics of batch norms were wrong for a mean over three epochs: that is told apart.
    both = {name for turn, name in rows if turn == 2} & {name for turn, name in rows if turn == 3} - {"plain_average3"}
    moved = [abs(nll(3, name) - nll(2, name)) for name in both]
    assert f"move by {min(moved):.3f} to {max(moved):.3f} in NLL".replace(" 0.", " .") in page
    risks = {
        name: 1e3 * rows[1, name]["judge_mirror"]["temperature"]["aurc"]
        for name in ("bands", "bands_mirror", "cross_entropy_average1")
    }
    assert "AURC {:.1f} and {:.1f} against {:.1f}".format(*risks.values()) in page
    early = rows[1, "bands"]["log"]
    assert all(early[f"doubt{k}"][0] == 0.3 for k in range(5))
    stayed = [all(value == 0.3 for value in early[f"doubt{k}"][:10]) for k in range(5)]
    assert stayed == [False] * 4 + [True]
    assert "that of the hardest band stayed there for ten epochs" in page
    assert nll(2, "small") < nll(2, "small_one_band")
    assert "in the second they beat one by .004 and lost to cross-entropy by as much" in page


def test_what_is_said_of_bands_embedded_images_and_pixels_is_what_is_kept():
    import json

    import numpy as np

    page = (ROOT / "benchmarks" / "results" / "findings.md").read_text(encoding="utf-8")
    kept = [
        one
        for folder in ("tuning", "settled")
        for one in json.loads((write.FINDINGS / folder / "by_band.json").read_text(encoding="utf-8")).values()
    ]
    gains = [(one["temperature"]["nll"] - one["by_band"]["nll"]) / one["error"] for one in kept]
    assert min(gains) > 0
    assert sum(gain <= 2 for gain in gains) == 1
    assert f"every one of {len(kept)} trainings, of all but one by more than two standard errors" in page
    rows = [json.loads(line) for line in (write.FINDINGS / "embedded.jsonl").read_text(encoding="utf-8").splitlines()]

    def mean(name: str, word: str = "accuracy", scale: float = 100.0) -> float:
        return float(np.mean([scale * row["test"][word] for row in rows if row["variant"] == name]))

    assert (
        f"ECE fell from {mean('cross_entropy', 'ece_mass'):.1f} to {mean('adaptive_difficulty', 'ece_mass'):.1f} %"
        in page
    )
    learnt = [
        [f"{mean(f'{form}, rate {rate:g}'):.0f}" for rate in (0.4, 0.1, 0.02)]
        for form in ("selective_au_released", "selective_au_detached")
    ]
    assert "and it learns ({}, {} and {} % there)".format(*learnt[0]) in page
    assert "drops their gradient ({}, {} and {} %;".format(*learnt[1]) in page
    assert f"({mean('kde_xe'):.1f} against {mean('cross_entropy, 4 epochs'):.1f} %)" in page
    pixels = json.loads((write.FINDINGS / "pixels.json").read_text(encoding="utf-8"))
    assert f"have {pixels['ratio'][1]:.1f} to {pixels['ratio'][-1]:.1f} times the power" in page
    assert f"pixels {pixels['test']['step']:.1f} against {pixels['train']['step']:.1f}" in page


def test_what_is_said_of_a_temperature_by_difficulty_is_what_its_table_holds():
    from confide import files

    page = (ROOT / "benchmarks" / "results" / "findings.md").read_text(encoding="utf-8")
    table, _ = files.read_table(ROOT / "benchmarks" / "results" / "papers" / "by-difficulty.parquet")

    def mean(method: str, quantity: str) -> float:
        at = (table["method"] == method) & (table["quantity"] == quantity)
        return float(table["mean"][at][0])

    nll, risk = (
        [mean("cross_entropy", f"{metric}, {stage}") for stage in ("one temperature", "by difficulty")]
        for metric in ("nll", "aurc")
    )
    assert f"{short(nll[0])} to {short(nll[1])} and from {risk[0]:.2f} to {risk[1]:.2f}" in page
    for name, title in (("label_smoothing", "label smoothing: AURC"), ("logit_norm", "LogitNorm")):
        before, after = (mean(name, f"aurc, {stage}") for stage in ("one temperature", "by difficulty"))
        assert f"{title} {before:.2f} to {after:.2f}" in page
    verdicts = (ROOT / "benchmarks" / "results" / "papers" / "verdicts.md").read_text(encoding="utf-8")
    assert verdicts.count("of every loss that learns | **met** |") == 2


def test_what_is_said_of_the_cells_is_what_they_hold():
    import json

    import numpy as np

    from benchmarks.findings.cells import read_cells

    page = (ROOT / "benchmarks" / "results" / "findings.md").read_text(encoding="utf-8")
    cells = read_cells(ROOT / "benchmarks" / "results" / "lite")
    accuracy = {
        name: 100 * np.mean([one["measured"]["raw"]["accuracy"] for one in some.values()])
        for name, some in cells.items()
    }
    assert f"costs {accuracy['cross_entropy'] - accuracy['mmce_weighted']:.0f} points of accuracy" in page
    seeds = [100 * one["measured"]["raw"]["accuracy"] for one in cells["selective_au_margin"].values()]
    assert "by margin instead of confidence hardly learn ({:.0f}, {:.0f} and {:.0f} %)".format(*sorted(seeds)) in page
    sweep = [f"{accuracy[f'selective_au_{coverage}_0.1']:.0f} %" for coverage in (0.25, 0.5, 0.75)]
    assert "learnt to {} at a coverage of 0.25, {} at 0.5 and {} at 0.75".format(*sweep) in page
    worse: dict[str, list[float]] = {}
    for path in (ROOT / "benchmarks" / "results" / "resampled").glob("*.json"):
        one = json.loads(path.read_text(encoding="utf-8"))
        gain = one["measured"]["temperature"]["ece_mass"] - one["measured"]["raw"]["ece_mass"]
        worse.setdefault(one["cell"]["method"]["name"], []).append(gain)
    raised = sum(np.mean(gains) > 0 for gains in worse.values())
    assert f"raises the ECE there of {raised} of the {len(worse)} losses" in page


def test_the_page_of_the_benchmarks_counts_what_there_is():
    from benchmarks.lib.grid import METHODS

    count = ("six", "seven", "eight", "nine")[sum(one.shifted for one in METHODS) - 6]
    assert f"for {count} methods also 16 corruptions" in (ROOT / "docs" / "bench.md").read_text(encoding="utf-8")
