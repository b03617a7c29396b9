"""What a user installs: the wheel's contents, its requirements, its types, and extras that match the errors."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
import tarfile
import venv
import zipfile
from email.parser import Parser
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


def run(*command: str | Path, cwd: Path) -> str:
    done = subprocess.run([str(part) for part in command], cwd=cwd, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_errors_name_extras_that_bring_the_package() -> None:
    text = (ROOT / "pyproject.toml").read_text()
    table = text[text.index("[project.optional-dependencies]") : text.index("[project.urls]")]
    extras = {
        name: {re.split(r"[\[<>=;]", found)[0].lower().replace("-", "_") for found in re.findall(r'"([^"]+)"', body)}
        for name, body in re.findall(r"^(\w+) = \[(.*?)\]$", table, re.MULTILINE | re.DOTALL)
    }
    named = []
    for path in (ROOT / "confide").rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "MissingExtra":
                package, extra = (part.value if isinstance(part, ast.Constant) else None for part in node.args[:2])
                assert extra in extras, f"{path.name}: no extra {extra!r}"
                if package is not None:
                    assert str(package).lower().replace("-", "_") in extras[str(extra)], f"{path.name}: {package}"
                named.append(extra)
    assert len(named) > 10


def test_the_container_is_built_from_files_that_reach_it() -> None:
    copied = re.findall(r"^COPY (.+) \S+$", (ROOT / "Dockerfile").read_text(), re.MULTILINE)
    needed = {name for line in copied for name in line.split()}
    assert {"pyproject.toml", "confide"} <= needed
    allowed = re.findall(r"^!(.+)$", (ROOT / ".dockerignore").read_text(), re.MULTILINE)
    assert needed == set(allowed)
    assert all((ROOT / name).exists() for name in needed)


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the wheel and the source archive."""
    out = tmp_path_factory.mktemp("dist")
    run(sys.executable, "-m", "build", "--outdir", out, ".", cwd=ROOT)
    return out


@pytest.mark.slow
def test_wheel_and_archive_hold_the_package_and_nothing_else(built: Path) -> None:
    (wheel,) = built.glob("*.whl")
    names = zipfile.ZipFile(wheel).namelist()
    assert {name.split("/")[0] for name in names if ".dist-info/" not in name} == {"confide"}
    assert "confide/py.typed" in names
    tracked = run("git", "ls-files", "confide", cwd=ROOT).split()
    assert set(tracked) == {name for name in names if name.startswith("confide/")}
    (archive,) = built.glob("*.tar.gz")
    with tarfile.open(archive) as opened:
        archived = {name.partition("/")[2] for name in opened.getnames()}
    assert {*tracked, "README.md", "LICENSE", "pyproject.toml", "setup.py"} <= archived
    # Half a suite is worse than none: the tests stay in the repository.
    roots = {"README.md", "LICENSE", "MANIFEST.in", "pyproject.toml", "setup.py", "setup.cfg", "PKG-INFO"}
    assert {name.split("/")[0] for name in archived if name} - roots == {"confide", "confide.egg-info"}
    run(sys.executable, "-m", "twine", "check", "--strict", wheel, archive, cwd=ROOT)
    run(Path(sys.executable).parent / "check-wheel-contents", wheel, cwd=ROOT)


@pytest.mark.slow
def test_the_package_index_gets_whole_addresses(built: Path) -> None:
    (wheel,) = built.glob("*.whl")
    opened = zipfile.ZipFile(wheel)
    meta = Parser().parsestr(opened.read(next(n for n in opened.namelist() if n.endswith("METADATA"))).decode())
    assert {line.split(",")[0] for line in meta.get_all("Project-URL") or []} >= {"Source", "Issues", "Changelog"}
    assert meta["Description-Content-Type"] == "text/markdown"
    text = str(meta.get_payload())
    links = re.findall(r"\]\(([^)\s]+)\)", text)
    assert len(links) > 10
    assert [link for link in links if not link.startswith(("https://", "#"))] == []
    assert re.search(r"!\[[^\]]*\]\(https://\S+/raw/main/docs/images/\S+\.png\)", text)


def stub_wheel(folder: Path, name: str, version: str) -> None:
    """An installable distribution without code: enough for pip to reckon with."""
    info = f"{name}-{version}.dist-info"
    with zipfile.ZipFile(folder / f"{name}-{version}-py3-none-any.whl", "w") as wheel:
        wheel.writestr(f"{info}/METADATA", f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")
        wheel.writestr(f"{info}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        wheel.writestr(f"{info}/RECORD", "")


@pytest.mark.slow
def test_wheel_leaves_a_newer_torch_alone(built: Path, tmp_path: Path) -> None:
    (wheel,) = built.glob("*.whl")
    meta = zipfile.ZipFile(wheel).read(next(n for n in zipfile.ZipFile(wheel).namelist() if n.endswith("METADATA")))
    required = Parser().parsestr(meta.decode()).get_all("Requires-Dist") or []
    needed = {re.split(r"[\s<>=!;\[(]", line)[0] for line in required if "extra ==" not in line}
    stubs = tmp_path / "stubs"
    stubs.mkdir()
    for name in needed - {"torch"}:
        stub_wheel(stubs, name, "999.0")
    for version in ("2.13.0", "9.9.0"):
        stub_wheel(stubs, "torch", version)
    venv.create(tmp_path / "env", with_pip=True)
    pip = [tmp_path / "env" / "bin" / "python", "-m", "pip", "install", "--quiet", "--no-index", "--find-links", stubs]
    run(*pip, "torch==9.9.0", cwd=tmp_path)
    run(*pip, wheel, cwd=tmp_path)
    listed = run(pip[0], "-m", "pip", "list", "--format", "freeze", cwd=tmp_path)
    assert "torch==9.9.0" in listed
    assert "confide==" in listed


@pytest.mark.slow
def test_types_of_the_wheel_reach_a_client(built: Path, tmp_path: Path) -> None:
    (wheel,) = built.glob("*.whl")
    venv.create(tmp_path / "env", with_pip=True)
    python = tmp_path / "env" / "bin" / "python"
    run(python, "-m", "pip", "install", "--quiet", "--no-deps", "--no-index", wheel, cwd=tmp_path)
    site = run(python, "-c", "import sysconfig; print(sysconfig.get_path('purelib'))", cwd=tmp_path).strip()
    # torch and numpy come from this environment, after the wheel.
    peers = [folder for folder in sys.path if folder.endswith("site-packages")]
    (Path(site) / "peers.pth").write_text("\n".join(peers) + "\n")
    client = tmp_path / "client.py"
    # One line is wrong: a checker that knew nothing of the types would let it pass.
    client.write_text((Path(__file__).parent / "client.py").read_text() + 'wrong: str = evaluation.value("ece")\n')
    check = [sys.executable, "-m", "mypy", "--strict", "--python-executable", python, client]
    done = subprocess.run([str(part) for part in check], cwd=tmp_path, capture_output=True, text=True)
    errors = [line for line in done.stdout.splitlines() if ": error:" in line]
    assert len(errors) == 1, done.stdout + done.stderr
    assert "Incompatible types in assignment" in errors[0]
