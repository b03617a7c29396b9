"""For all rooms: tests of a GPU are skipped where there is none; tests of a page share how Chromium is started; the key
that signs run folders is not the user's own."""

from __future__ import annotations

import os
import shutil
import subprocess
import tarfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

CHROMIUM = next((p for n in ("chromium", "chromium-browser", "google-chrome") if (p := shutil.which(n))), None)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    if not torch.cuda.is_available():
        for item in items:
            if item.get_closest_marker("gpu"):
                item.add_marker(pytest.mark.skip(reason="needs a CUDA device"))


@pytest.fixture(scope="session", autouse=True)
def config_home(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A config folder for the tests, also for the processes they start."""
    with pytest.MonkeyPatch.context() as patch:
        folder = tmp_path_factory.mktemp("config")
        patch.setenv("XDG_CONFIG_HOME", str(folder))
        yield folder


@pytest.fixture(scope="module")  # Playwright keeps a loop running, which tests of other rooms must not find
def browser() -> Iterator[Any]:
    api = pytest.importorskip("playwright.sync_api", reason="playwright is not installed (extra: slow)")
    if CHROMIUM is None:
        pytest.skip("Chromium is not installed")
    with api.sync_playwright() as play:
        found = play.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        yield found
        found.close()


@pytest.fixture(scope="session")
def axe(tmp_path_factory: pytest.TempPathFactory) -> str:
    """axe-core as a script: the file that AXE_CORE names, or what npm fetches into a folder of the tests."""
    named = os.environ.get("AXE_CORE")
    if named is not None:
        return Path(named).read_text(encoding="utf-8")
    folder, npm = tmp_path_factory.mktemp("axe"), shutil.which("npm")
    if npm is None:
        pytest.skip("axe-core: neither AXE_CORE=axe.min.js nor npm, which fetches it, is there")
    command = [npm, "pack", "axe-core@4", "--silent", "--pack-destination", str(folder)]
    try:
        subprocess.run(command, check=True, capture_output=True, timeout=120, cwd=folder)
        with tarfile.open(next(folder.glob("*.tgz"))) as packed:
            script = packed.extractfile("package/axe.min.js")
            assert script is not None
            return script.read().decode()
    except (OSError, subprocess.SubprocessError, StopIteration, KeyError):
        pytest.skip("axe-core: npm could not fetch it; AXE_CORE=axe.min.js names a file instead")


def axe_violations(page: Any, axe: str) -> list[tuple[str, list[str]]]:
    """What axe-core finds wrong in a page, with the first elements it complains of."""
    page.evaluate(f"{axe};0")
    found = page.evaluate("axe.run(document, { resultTypes: ['violations'] })")["violations"]
    return [(v["id"], [n["html"][:120] for n in v["nodes"][:3]]) for v in found]
