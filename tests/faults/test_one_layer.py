"""Nothing in the package changes the disk but `confide.files.disk`, where the tests of faults can make it fail."""

import re
from pathlib import Path

import confide

PACKAGE = Path(confide.__file__).parent
CHANGES = re.compile(
    r"os\.(replace|rename|remove|unlink|mkdir|makedirs|rmdir)\(|shutil\.(rmtree|move|copy\w*)\("
    r"|\.(unlink|rmdir|mkdir|touch|symlink_to)\("
    r"|(?<!temporary)\.write_(text|bytes)\((?!path, |folder\.|out|Path\()"
    r"""|open\((?!temporary)[^)]*["'][wax]b?\+?["']"""
)
DRAWINGS = "report/static.py"
"""Its figures are drawn to the temporary file that it is given."""


def test_the_package_changes_the_disk_in_one_place():
    lines = [
        (path.relative_to(PACKAGE).as_posix(), line.strip())
        for path in sorted(PACKAGE.rglob("*.py"))
        for line in path.read_text().splitlines()
        if CHANGES.search(line) and not line.strip().startswith((">>>", "..."))
    ]
    elsewhere = [found for found in lines if found[0] not in ("files/disk.py", DRAWINGS)]
    assert elsewhere == []
