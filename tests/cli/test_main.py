import argparse
import contextlib
import io
import math
import os
import re
import shutil
import subprocess
import sys
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path

import pytest

import confide.__main__
from confide import metrics
from confide.checks import InputError
from confide.cli.completion import whole_parser
from confide.cli.doctor import BRINGS, requirements
from confide.cli.main import VERBS, main
from confide.cli.shared import metric_cell, parse_method_options, parse_options, text_table


def test_help_is_quick_and_loads_no_torch():
    code = (
        "import sys, time; from confide.cli.main import main; main([]);"
        "print(time.process_time(), file=sys.stderr); sys.exit('torch' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    for verb in VERBS:
        assert verb in done.stdout
    # CPU seconds of the whole process, so that other people's load does not count.
    assert float(done.stderr) < 0.5


def test_the_help_of_every_verb_and_the_list_of_methods_load_no_torch(capsys):
    code = """
import contextlib, io, sys
from confide.cli.main import VERBS, main
for verb in VERBS:
    with contextlib.suppress(SystemExit), contextlib.redirect_stdout(io.StringIO()):
        main([verb, "--help"])
assert "numpy" not in sys.modules, "help"
main(["list", "--json"])
# Modules that were imported without torch are gone, so that the next import brings them whole.
assert not {"torch", "scipy", "confide.losses"} & set(sys.modules), "list"
assert "losses" not in vars(sys.modules["confide"]), "list"
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    main(["list", "--json"])
    assert done.stdout == capsys.readouterr().out  # the same list as with torch


def test_evaluating_a_file_loads_only_what_it_uses(tmp_path):
    code = """
import sys
import numpy as np
from confide.cli.main import main
draw = np.random.default_rng(0)
np.savez("small.npz", logits=draw.normal(size=(60, 3)), labels=draw.integers(3, size=60))
assert main(["evaluate", "small.npz", "--quiet"]) == 0
idle = ("scipy.stats scipy.optimize scipy.sparse scipy.linalg PIL matplotlib pandas duckdb pyarrow.compute "
        "confide.calibrators confide.data confide.difficulty confide.losses confide.models confide.shift confide.trust")
sys.exit(" ".join(name for name in idle.split() if name in sys.modules))
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120, cwd=tmp_path)
    # Up to scipy 1.15, the last for Python 3.10, scipy.special loads sparse and linalg by itself.
    alone = [sys.executable, "-c", "import scipy.special, sys; print(*sys.modules)"]
    brought = subprocess.run(alone, capture_output=True, text=True, check=True, timeout=120).stdout.split()
    assert set(done.stderr.split()) - set(brought) == set()


def test_importing_the_package_loads_neither_torch_nor_numpy():
    code = "import sys, confide; sys.exit(any(m in sys.modules for m in ('torch', 'numpy', 'scipy')))"
    assert subprocess.run([sys.executable, "-c", code], timeout=60).returncode == 0


@pytest.mark.parametrize("verb", VERBS)
def test_every_verb_explains_itself_with_an_example(verb, capsys):
    with pytest.raises(SystemExit) as stop:
        main([verb, "--help"])
    assert stop.value.code == 0
    shown = capsys.readouterr().out
    assert "example:" in shown
    assert f"confide {verb}" in shown
    assert "--json" in shown


def test_an_unknown_verb_is_wrong_usage(capsys):
    with pytest.raises(SystemExit) as stop:
        main(["evaluat"])
    assert stop.value.code == 2
    assert "evaluate" in capsys.readouterr().err


def test_bad_input_is_one_line_and_status_1(tmp_path, capsys):
    assert main(["evaluate", str(tmp_path / "gone.npz")]) == 1
    error = capsys.readouterr().err.strip()
    assert error.startswith("confide: ")
    assert "does not exist" in error
    assert "\n" not in error


def test_doctor_knows_every_extra():
    needed = requirements()
    assert set(needed) - {"", "dev", "docs", "slow"} == set(BRINGS)
    assert "torch" in needed[""]
    assert set(needed["explore"]) == {"fastapi", "uvicorn", "duckdb"}


def test_threads_that_wait_do_not_spin(monkeypatch, capsys):
    monkeypatch.setattr("sys.argv", ["confide", "--version"])
    for before, after in ((None, "PASSIVE"), ("ACTIVE", "ACTIVE")):
        monkeypatch.delenv("OMP_WAIT_POLICY", raising=False)
        if before:
            monkeypatch.setenv("OMP_WAIT_POLICY", before)
        with contextlib.suppress(SystemExit):
            confide.__main__.main()
        assert os.environ["OMP_WAIT_POLICY"] == after
    monkeypatch.undo()


def test_doctor_ends_with_the_line_that_mends(monkeypatch, capsys):
    monkeypatch.setattr("confide.cli.doctor.version_of", lambda name: None if name in ("duckdb", "ray") else "1.0")
    assert main(["doctor"]) == 0
    assert capsys.readouterr().out.splitlines()[-1].endswith("for every extra: pip install 'confide[ray,explore]'")
    monkeypatch.setattr("confide.cli.doctor.version_of", lambda name: None if name == "pyarrow" else "1.0")
    assert main(["doctor"]) == 1
    assert capsys.readouterr().out.splitlines()[-1].endswith("mend with: pip install pyarrow")


@pytest.mark.parametrize(
    ("words", "last"), [(["doctor"], "needed but missing"), (["evaluate", "a.npz"], "confide: not")]
)
def test_a_bare_interpreter_is_told_what_to_install(words, last):
    code = (
        "import sys; sys.path.insert(0, sys.argv[1])\nfrom confide.cli import doctor, main\n"
        "doctor.requirements = lambda: {'': ('numpy', 'torch'), 'ray': ('ray',)}\nsys.exit(main.main(sys.argv[2:]))"
    )
    command = [sys.executable, "-I", "-S", "-c", code, str(Path(confide.__file__).parents[1]), *words]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 1
    assert "Traceback" not in done.stderr
    line = (done.stdout + done.stderr).splitlines()[-1]
    assert line.startswith(last)
    assert line.endswith("mend with: pip install numpy torch")


def test_doctor_and_list_answer_machines(capsys):
    import json

    assert main(["doctor", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["core"]["torch"]
    assert main(["list", "losses", "--json"]) == 0
    rows = json.loads(capsys.readouterr().out)["losses"]
    assert {"focal", "adafocal"} <= {row["word"] for row in rows}
    assert main(["list", "nonsense"]) == 1
    assert "no family named 'nonsense'" in capsys.readouterr().err


def test_words_stand_left_and_numbers_right():
    rows = [
        ["focal", "raw", "0.12 ±0.01", "-"],
        ["cross_entropy", "temperature", "11.5", "< 0.001"],
        ["x", "", "", "+3"],
    ]
    assert text_table(["loss", "stage", "ECE", "p"], rows).splitlines() == [
        "loss           stage               ECE        p",
        "-------------  -----------  ----------  -------",
        "focal          raw          0.12 ±0.01        -",
        "cross_entropy  temperature        11.5  < 0.001",
        "x                                            +3",
    ]


def test_methods_are_listed_by_the_alphabet(capsys):
    assert main(["list", "losses"]) == 0
    words = re.findall(r"^  (\w+)\(", capsys.readouterr().out, re.M)
    assert len(words) > 20
    assert words == sorted(words)


def test_no_verb_needs_torch_to_explain_itself():
    code = (
        "import contextlib, io, sys; from confide.cli.main import VERBS, main\n"
        "for verb in VERBS:\n"
        "    with contextlib.redirect_stdout(io.StringIO()), contextlib.suppress(SystemExit):\n"
        "        main([verb, '--help'])\n"
        "    assert 'torch' not in sys.modules, verb"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr


def test_a_verb_that_is_misspelt_is_guessed(capsys):
    with pytest.raises(SystemExit) as stopped:
        main(["evalute", "x"])
    assert stopped.value.code == 2
    assert "no verb 'evalute'; did you mean 'evaluate'?" in capsys.readouterr().err


@pytest.mark.parametrize("verb", VERBS)
def test_every_option_is_explained(verb):
    parser = argparse.ArgumentParser()
    import_module(f"confide.cli.{verb.replace('-', '_')}").configure(parser)
    silent = [action.option_strings or action.dest for action in parser._actions if not action.help]
    assert silent == []


@pytest.mark.parametrize(
    ("read", "text", "options"),
    [
        (parse_options, "ridge=1e-3", {"ridge": 1e-3}),
        (parse_options, "augment-runs = [1, 2]", {"augment_runs": [1, 2]}),
        (parse_method_options, "steep_slope.alpha_neg=1e1", {"steep_slope": {"alpha_neg": 10.0}}),
    ],
)
def test_every_verb_reads_1e_3_as_a_number_and_names_what_is_no_value(read, text, options):
    assert read([text]) == options
    with pytest.raises(InputError, match=r"^the value of '[a-z_.]+' must be YAML: [^\n]+$"):
        read([f"{text.partition('=')[0]}=[1"])
    with pytest.raises(InputError, match="VALUE"):
        read(["word"])


def test_all_verbs_stand_in_the_parser_of_the_completion(capsys):
    parser = whole_parser()
    shown = parser.format_help()
    assert all(verb in shown for verb in VERBS)
    args = parser.parse_args(["evaluate", "a.csv", "--no-intervals", "--json"])
    assert (args.source, args.json) == ("a.csv", True)
    status = main(["completion", "bash"])
    told = capsys.readouterr()
    if status:
        assert "pip install shtab" in told.err
    else:
        assert "operating-point" in told.out


@pytest.mark.skipif(not (shutil.which("bash") and find_spec("shtab")), reason="needs bash and shtab")
def test_the_shell_completes_verbs_flags_and_the_words_of_methods(capsys):
    assert main(["completion", "bash"]) == 0
    lines = [capsys.readouterr().out]
    typed = (["operat"], ["calibrate", "--met"], ["train", "--loss", "adaf"], ["list", "calib"])
    for words in typed:
        words = ["confide", *words]
        lines.append(f"COMP_WORDS=({' '.join(words)}); COMP_CWORD={len(words) - 1}; COMPREPLY=()")
        lines.append(f"_shtab_confide confide {words[-1]} {words[-2]} 2>/dev/null; echo ${{COMPREPLY[*]}}")
    done = subprocess.run(["bash"], input="\n".join(lines), capture_output=True, text=True, timeout=60)
    assert done.stdout.split() == ["operating-point", "--methods", "adafocal", "calibrators"]


@pytest.mark.parametrize("unbuffered", ["", "1"])
def test_a_reader_that_left_is_no_error(unbuffered):
    read, write = os.pipe()
    os.close(read)
    run = subprocess.run(
        [sys.executable, "-m", "confide", "list"],
        stdout=write,
        stderr=subprocess.PIPE,
        env={**os.environ, "PYTHONUNBUFFERED": unbuffered},
    )
    os.close(write)
    assert (run.returncode, run.stderr) == (141, b"")


@pytest.mark.parametrize(
    ("bounds", "cell"), [((0.25, 0.5), "0.333 ±0.125"), (None, "0.333"), ((math.inf, math.inf), "0.333")]
)
def test_a_cell_has_half_of_a_known_interval(bounds, cell):
    measurement = confide.Measurement("nll", 1 / 3, 10, bounds=bounds)
    assert metric_cell(metrics.METRICS.get("nll").spec.info, measurement) == cell
    assert metric_cell(metrics.METRICS.get("nll").spec.info, None) == ""


@pytest.mark.parametrize(
    ("words", "told"),
    [
        ([], "one\nexplorer: http://127.0.0.1:1/\n"),
        (["--quiet"], "explorer: http://127.0.0.1:1/\n"),
        (["--json"], '{\n "address": "http://127.0.0.1:1/",\n "tags": "t.sqlite"\n}\n'),
    ],
)
def test_the_explorer_says_its_address_at_once_whoever_reads(monkeypatch, words, told):
    """Whoever waits for the address behind a pipe gets it before the explorer ends."""
    from confide import explorer

    class Pipe(io.StringIO):
        flushed = ""

        def flush(self):
            self.flushed = self.getvalue()

    def serve(layout, *, say, **options):
        for line in ("one", "explorer: http://127.0.0.1:1/"):
            say(line)
        seen.append(pipe.flushed)

    pipe, seen = Pipe(), []
    monkeypatch.setattr(sys, "stdout", pipe)
    monkeypatch.setattr(explorer, "serve", serve)
    monkeypatch.setattr(explorer, "open_layout", lambda *_, **__: argparse.Namespace(tags="t.sqlite"))
    assert main(["explore", "x", *words]) == 0
    assert seen == [told]
