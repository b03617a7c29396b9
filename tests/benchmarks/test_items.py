"""The tables and figures of the papers: well-formed, complete, and one of them run."""

from __future__ import annotations

import os
import re
import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from benchmarks import ROOT
from benchmarks.__main__ import main
from benchmarks.lib.claims import Better
from benchmarks.lib.grid import lite_cells, method_named
from benchmarks.lib.items import Item, Outcome, reported
from benchmarks.lib.results import Results, is_stale
from benchmarks.lib.run import run_item
from benchmarks.lib.tables import escaped, markdown, write
from benchmarks.lib.values import Value, summaries
from benchmarks.lib.workers import Place, grid_state
from benchmarks.papers import items
from confide import files
from confide.checks import InputError
from confide.training import Settings

WANTED = {
    1: {*(f"table{k}" for k in range(2, 11)), "figure1b", "figure2", "figure3", "figure4", "figure10", "figure11"},
    2: {"table1", "table2", "table4", "figure2", "figure3", "figure5", "figure6"},
    3: {"table1", "table2", "table3", "figure3", "figure4"},
    4: {f"figure{k}" for k in range(2, 8)},
    5: {"table1", "table2", "figure4", "figure5", "figure6"},
}
ITEMS = items()
OWN = ("by-difficulty", "main")


def test_every_table_and_figure_is_there():
    expected = {f"p{paper}-{name}" for paper, names in WANTED.items() for name in names}
    assert set(ITEMS) == {*expected, *OWN}


@pytest.mark.parametrize("item", ITEMS.values(), ids=list(ITEMS))
def test_an_item_can_be_run_at_every_scale(item: Item):
    assert item.setting
    assert item.here
    assert item.claims
    for name in (*item.methods, *item.smoke):
        assert method_named(name).name == name
    for scale in ("smoke", "lite", "paper"):
        for cell in item.cells(scale):
            if not cell.method.optional:
                assert cell.key
    if item.methods:
        assert item.cells("smoke")
        assert {cell.method.name for cell in item.cells("lite")} <= set(item.methods)


def test_a_file_per_item_named_as_the_item():
    for path in (ROOT / "benchmarks" / "papers").glob("p[0-9]_*.py"):
        assert path.stem.replace("_", "-") in ITEMS
        assert len(path.read_text(encoding="utf-8").splitlines()) <= 120


def test_a_paper_has_one_year_everywhere():
    listed = dict(
        re.findall(r"^(\d)\. (?:.|\n   )*?(20\d\d)\.$", (ROOT / "docs" / "methods.md").read_text("utf-8"), re.M)
    )
    assert set(listed) == set("12345")
    for name, item in ITEMS.items():
        if name not in OWN:
            assert f"({listed[name[1]]})" in item.source
    errata = (ROOT / "docs" / "errata.md").read_text("utf-8")
    told = {item.source.partition(",")[0] for item in ITEMS.values()}
    assert set(re.findall(r"\w+ et al\. \(20\d\d\)", errata)) <= told


def test_a_claim_says_what_the_papers_own_numbers_show():
    """Where a paper prints numbers on a dataset that is looked at here, they must have the sign that is claimed."""
    looked = {"cifar10": "CIFAR-10", "tiny32": "Tiny-ImageNet"}
    seen = 0
    for item in ITEMS.values():
        told = {(one.dataset, one.method, one.quantity): one.value for one in item.reported}
        for claim in (one for one in item.claims if isinstance(one, Better)):
            right = {}
            for dataset in dict.fromkeys(one.dataset for one in item.reported):
                own = told.get((dataset, claim.method, claim.quantity))
                others = [told.get((dataset, other, claim.quantity)) for other in claim.than]
                known = [other for other in others if other is not None]
                if own is not None and known:
                    right[dataset] = all((own > other) == claim.higher and own != other for other in known)
            here = [
                one
                for dataset, one in right.items()
                if re.split("[,/]", dataset)[0].strip() in {looked[name] for name in claim.on or item.datasets}
            ]
            seen += len(here)
            enough = 2 * sum(right.values()) >= len(right) if "in most cases" in claim.text else all(here)
            assert enough, (item.name, claim.text, right)
    assert seen > 30


def an_item(rows: list[Value]) -> tuple[Item, Outcome]:
    told = reported("CIFAR-10", "accuracy; ece", {"old": (93.5, 3.0), "new": (94.0, None)})
    item = Item("x-table", "t | itle", "A & B", "s", "h", lambda study: rows, reported=told, baseline="old")
    found = tuple(summaries(rows, "old"))
    about = {
        (row.dataset, row.method): {"seconds": 1.0, "hardware": "H", "commit": "c" * 12, "schedule": ""}
        for row in found
    }
    return item, Outcome(found, (), ("cell-a",), about)


def test_numbers_stand_beside_the_papers(tmp_path):
    rows = [Value("d_1", m, "ece", s, v * (1 + s / 100)) for m, v in (("old", 3.0), ("new", 1.0)) for s in range(3)]
    item, outcome = an_item(rows)
    paths = write(item, outcome, tmp_path, "lite")
    page = paths[1].read_text(encoding="utf-8")
    assert "| here | d_1 | new | 1.010 ± 0.010* |  |" in page
    assert "| paper | CIFAR-10 | old | 3 | 93.5 |" in page
    assert "Not there (1 cells): cell-a" in page
    table, about = files.read_table(paths[0])
    assert about["scale"] == "lite"
    at = table["method"] == "new"
    assert table["difference"][at] == pytest.approx(-2.02)
    assert table["p_holm"][at] < 0.05
    assert table["seeds"].tolist() == [3, 3]
    tex = paths[2].read_text(encoding="utf-8")
    assert r"d\_1" in tex
    assert r"$\pm$" in tex


def test_what_is_no_percentage_is_told_apart():
    def foot(*quantities: str) -> str:
        rows = [Value("d", "m", quantity, 0, 1.0) for quantity in quantities]
        return markdown(*an_item(rows), "lite").splitlines()[-3]

    assert "Percentages. " in foot("accuracy", "ece_mass, mean of all")
    assert "Percentages, but AURC × 1000, NLL in nats. " in foot("accuracy", "aurc, temperature", "val nll")
    assert "Percentages, but NLL in nats, p a probability. " in foot("ece", "nll", "calibration_p", "p of all seeds")
    assert "Percentages" not in foot("Kendall's tau")
    assert "Percentages, but Pearson a plain number. " in foot("error", "Pearson of error and confusion")
    assert "Units: confusion in bits. " in foot("mean confusion", "deviation")


def test_cells_of_different_schedules_are_not_mixed(tmp_path):
    for seed, epochs in enumerate((16, 10)):
        cell = {"dataset": "d", "model": "m", "seed": seed, "method": {"name": "a"}, "settings": {"epochs": epochs}}
        files.write_json(
            tmp_path / "cells" / f"{seed}.json", {"format": "bench-cell/1", "name": str(seed), "cell": cell}
        )
    with pytest.raises(InputError, match="trained alike"):
        Results((tmp_path,), tmp_path).check_alike()


def test_compiled_cells_stand_beside_others(tmp_path):
    for seed, settings in enumerate(
        ({"epochs": 16}, {"epochs": 16, "compile": True}, {"epochs": 16, "compile": False})
    ):
        cell = {"dataset": "d", "model": "m", "seed": seed, "method": {"name": "a"}, "settings": settings}
        files.write_json(
            tmp_path / "cells" / f"{seed}.json", {"format": "bench-cell/1", "name": str(seed), "cell": cell}
        )
    Results((tmp_path,), tmp_path).check_alike()


def test_a_second_network_does_not_replace_the_first_in_a_table(tmp_path):
    for model in ("resnet18", "resnet34"):
        cell = {"dataset": "d", "model": model, "seed": 0, "method": {"name": "a"}, "settings": {}}
        files.write_json(tmp_path / "cells" / f"{model}.json", {"format": "bench-cell/1", "name": model, "cell": cell})
    assert Results((tmp_path,), tmp_path, ("resnet18",)).of("d", "a")[0]["name"] == "resnet18"
    assert Results((tmp_path,), tmp_path, ("resnet18",)).of("d", "a", "resnet34")[0]["name"] == "resnet34"


def test_a_cell_of_a_method_that_changed_since_is_not_there(tmp_path):
    cell = next(one for one in lite_cells() if one.name == "cifar10-resnet18-focal-s0")
    short = replace(cell, settings={**cell.settings, "epochs": 8})
    for one, there in ((cell, True), (short, True), (replace(cell, method=replace(cell.method, options={})), False)):
        result = {"format": "bench-cell/1", "name": one.name, "key": one.key, "cell": one.as_dict()}
        files.write_json(tmp_path / "cells" / "one.json", result)
        assert (cell.name in Results((tmp_path,), tmp_path).cells) == there


def test_latex_and_markdown_escape_what_they_must():
    assert escaped("a_b & 5 % #1 {x}") == r"a\_b \& 5 \% \#1 \{x\}"
    # The usual text fonts of LaTeX show other letters for these.
    assert escaped("p > 0.05 | p < 1") == r"p $>$ 0.05 $|$ p $<$ 1"
    item, outcome = an_item([Value("a|b", "m", "q", 0, 1.0)])
    assert "a\\|b" in markdown(item, outcome, "lite")


@pytest.mark.parametrize("path", sorted((ROOT / "benchmarks/results/papers").glob("*.tex")), ids=lambda one: one.stem)
def test_the_kept_latex_is_well_formed(path):
    text = path.read_text(encoding="ascii")
    assert r"% needs \usepackage{booktabs}" in text
    body = "\n".join(line for line in text.splitlines() if not line.startswith("%"))
    plain = re.sub(r"\\[&%_#$]|\$(?:\\pm|\\times|[<>|])\$|\\text\w+\{\}", "", body)
    assert not re.search(r"[$%_#<>|~^]", plain)
    assert body.count("{") == body.count("}")
    found = re.findall(r"\\begin\{tabular\}\{([lr]+)\}\n\\toprule\n(.*?)\n\\bottomrule\n\\end\{tabular\}", plain, re.S)
    assert len(found) == body.count(r"\begin{tabular}")
    for columns, rows in found:
        lines = rows.replace("\\midrule\n", "").removesuffix(r"\\").split("\\\\\n")
        assert {line.count("&") for line in lines} == {len(columns) - 1}


def test_a_figure_shows_some_points_and_keeps_all(tmp_path):
    rows = [Value("d", "m", "q", 0, float(np.sin(x)), float(x)) for x in range(100)]
    item, outcome = an_item(rows)
    paths = write(item, outcome, tmp_path, "lite")
    assert len(re.findall(r"\| here \|", paths[1].read_text(encoding="utf-8"))) == 12
    assert len(files.read_table(paths[0])[0]["x"]) == 100


def test_bench_lists_and_refuses_in_one_line(capsys):
    assert main([]) == 0
    assert "p5-table1" in capsys.readouterr().out
    assert main(["p5-tabel1"]) == 1
    assert "did you mean 'p5-table1'" in capsys.readouterr().err
    assert main(["grid", "--data", "cifar10"]) == 1
    assert "--data must be NAME=VALUE" in capsys.readouterr().err
    assert main(["unpack"]) == 1
    assert "at least one archive" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["grid", "--methods", "focla"], "did you mean 'focal'"),
        (["grid", "--methods", "focal", "--parts", "sweep"], "no cell of the grid fits"),
        (["grid", "--data", "cifar10=gone"], "--data cifar10=gone must name data that is there"),
        (["tables"], "must hold cells of a grid"),
        (["tabels"], "did you mean 'tables'"),
        (["grid", "--seeds", "a"], "--seeds must be whole numbers such as 0,1,2, got 'a'"),
        (["grid", "--parts", "swep"], "did you mean 'sweep'"),
        (["grid", "--data", "cifr10=."], "did you mean 'cifar10'"),
        (["grid", "--workers", "0"], "workers must lie in [1, inf), got 0"),
        (["grid", "--per-gpu", "0"], "workers on a GPU must lie in [1, inf), got 0"),
        (["grid", "--limit", "-3"], "limit must lie in [0, inf), got -3"),
        (["grid", "--set", "epoch=3"], "epoch"),
        (["grid", "--datasets", "tiny32"], "that of tiny32 is not; name it by --data tiny32=PATH"),
        (["grid", "--datasets", "tiny32", "--data", "cifar10=."], "that of tiny32 is not; name it by --data tiny32"),
        (["grid", "--datasets", "cifar"], "did you mean 'cifar10'"),
        (["prepare"], "prepare needs data of cifar10 or tiny32; name it by --data NAME=PATH"),
        (["p1-table2", "--seeds", "a"], "--seeds must be whole numbers such as 0,1,2, got 'a'"),
        (["p1-table2", "--seeds", "9"], "p1-table2 has no seed '9' at smoke scale; known: 0, 1"),
        (["p1-table2", "--methods", "poly"], "p1-table2 has no method 'poly' at smoke scale; known: cross_entropy"),
        (["p1-table2", "--model", "resnet34"], "p1-table2 has no network 'resnet34' at smoke scale"),
        (["p1-table2", "--set", "epochs=1"], "--set changes the training of a table at paper scale only"),
        (["p1-table2", "--scale", "paper", "--set", "epoch=1"], "epoch"),
        (["p1-table2", "p1-table3"], "p1-table2 takes no further words, got 'p1-table3'"),
    ],
)
def test_a_grid_that_cannot_run_is_refused_before_it_writes(words, told, tmp_path, capsys):
    assert main([*words, "--out", str(tmp_path / "out")]) == 1
    said = capsys.readouterr().err
    assert told in said
    assert said.count("\n") == 1
    assert not (tmp_path / "out").exists()


def test_a_grid_leaves_out_the_cells_whose_data_is_not_at_hand(tmp_path, capsys, monkeypatch):
    ran = []
    monkeypatch.setattr(
        "benchmarks.__main__.run_grid", lambda cells, place: ran.extend(cells) or grid_state(cells, place.out)
    )
    words = [
        "grid",
        "--data",
        f"cifar10={tmp_path}",
        "--methods",
        "focal",
        "--seeds",
        "0",
        "--out",
        str(tmp_path / "o"),
    ]
    assert main([*words]) == 0
    assert [cell.name for cell in ran] == ["cifar10-resnet18-focal-s0"]
    assert "cells of tiny32 are left out: name its data by --data tiny32=PATH" in capsys.readouterr().err


def test_tables_leave_out_what_needs_predictions_and_go_on(tmp_path, capsys):
    (tmp_path / "cells").mkdir()
    for path in (ROOT / "benchmarks" / "results" / "lite" / "cells").glob("*-s[01].json"):
        shutil.copy(path, tmp_path / "cells")
    assert main(["tables", "--out", str(tmp_path), "--tables", str(tmp_path / "tables")]) == 0
    assert "p2-table4 left as it is: predictions of" in capsys.readouterr().err
    assert (tmp_path / "tables" / "p1-table2.md").exists()
    assert (tmp_path / "tables" / "verdicts.md").exists()


def test_the_command_that_is_kept_names_no_folder_of_this_machine(monkeypatch, tmp_path):
    monkeypatch.setenv("CONFIDE_COMMAND", "")
    assert main(["grid", "--data", "cifar10=/home/me/cifar", "--out", "/x/y/z"]) == 1
    assert os.environ["CONFIDE_COMMAND"] == "python -m benchmarks grid --data cifar10=cifar --out z"


def test_lite_without_cells_says_what_is_missing(tmp_path, capsys):
    assert main(["p5-table2", "--scale", "lite", "--out", str(tmp_path)]) == 0
    said = capsys.readouterr().out
    assert "not testable here" in said
    assert "cifar10-resnet18-cross_entropy-s0" in said


@pytest.mark.parametrize("item", [one for one in ITEMS.values() if one.paper], ids=lambda one: one.name)
def test_every_papers_settings_can_be_built(item: Item):
    for one in item.paper:
        Settings.from_dict({**one.training, "model": one.model, "epochs": 1})
    assert all(cell.key for cell in item.cells("paper"))


def test_the_papers_settings_run_dry_up_to_the_data(tmp_path, monkeypatch):
    item = ITEMS["p2-figure6"]
    monkeypatch.setattr("benchmarks.lib.run.data.load_dataset", _refuse)
    found = run_item(item, "paper", Place(tmp_path), tmp_path)
    assert found.outcome is None
    assert any("preresnet56 on cifar10, 200 epochs, batch 128, 3 seeds of 8 methods" in note for note in found.notes)
    one = run_item(ITEMS["p3-table2"], "paper", Place(tmp_path), tmp_path).notes[0]
    assert one == "timm:vgg16_bn on cifar10, 250 epochs, batch 128, 1 seed"
    assert found.notes[-1] == "dry run, nothing was trained; not at hand: cifar10; name each by --data NAME=PATH"
    with pytest.raises(InputError, match="elsewhere must be a dataset"):
        run_item(item, "paper", Place(tmp_path, {"cifar10": "elsewhere"}), tmp_path)


def _refuse(source, **options):
    raise InputError(f"{source} must be a dataset; give its path")


@pytest.mark.slow
def test_one_table_at_smoke_scale(tmp_path, capsys):
    assert main(["p5-table2", "--out", str(tmp_path), "--quiet"]) == 0
    said = capsys.readouterr().out
    assert "Here (smoke scale): a small network, 3 epochs on 300 embedded images" in said
    assert "| here | Fashion-MNIST sample | adafocal |" in said
    assert "| paper | CIFAR-10, ResNet-50 | adafocal | 94.7 |" in said
    assert Path(tmp_path / "tables" / "smoke" / "p5-table2.tex").exists()


def test_no_kept_cell_of_the_grid_is_stale():
    """A renamed setting or another default would drop rows from the tables without a word."""
    kept = [files.read_json(path) for path in sorted((ROOT / "benchmarks/results/lite/cells").glob("*.json"))]
    assert len(kept) > 200
    assert [result["name"] for result in kept if is_stale(result)] == []
