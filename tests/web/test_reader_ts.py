"""The reader in TypeScript: its own tests, the vectors that Python is held against among them."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

from tests.lacking import lacking


def test_types_vectors_and_pitfalls(page_built: Path) -> None:
    npm = shutil.which("npm") or lacking("npm")
    run = subprocess.run(
        [npm, "test"], cwd=page_built.parent, check=False, capture_output=True, text=True
    )
    assert run.returncode == 0, run.stdout[-4000:] + run.stderr[-2000:]
