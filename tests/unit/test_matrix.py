"""The table of endings is what the tests' marks say, and leaves none out."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

from livekit_lifecycle import Reason

ROOT = Path(__file__).parent.parent.parent
MATRIX = (ROOT / "docs" / "matrix.md").read_text()


def cells(text: str) -> list[list[str]]:
    return [
        [cell.strip() for cell in line.strip("|").split("|")]
        for line in text.splitlines()
        if line.startswith(("| intentional", "| crash"))
    ]


def test_it_is_up_to_date(tmp_path: Path) -> None:
    made = tmp_path / "matrix.md"
    collect = ["-p", "tests.endings", "-m", "ending", "--collect-only", "-q"]
    where = ["tests/integration", "-p", "no:cacheprovider", "--matrix", str(made)]
    subprocess.run([sys.executable, "-m", "pytest", *collect, *where], cwd=ROOT, check=True)
    assert made.read_text() == MATRIX, "run `make matrix`"


def test_every_ending_of_the_docs_is_made_to_happen() -> None:
    shown = {(row[1].strip("`"), row[2].strip("`")) for row in cells(MATRIX)}
    assert {reason for reason, _ in shown} == {reason.value for reason in Reason}
    for row in cells((ROOT / "docs" / "endings.md").read_text()):
        reason = row[1].strip("`")
        for detail in re.findall(r"`([^`]+)`", row[3]):
            pair = (reason, detail)
            assert pair in shown, pair
