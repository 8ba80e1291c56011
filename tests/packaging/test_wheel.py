"""What is shipped: all that is needed and nothing else, and it works away from the checkout."""

from __future__ import annotations

import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent.parent


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("dist")
    command = [sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", str(folder)]
    subprocess.run(command, cwd=ROOT, check=True, capture_output=True)
    (built,) = folder.glob("*.whl")
    return built


def test_every_module_is_in_it_and_no_test(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        names = set(archive.namelist())
    modules = {
        f"livekit_lifecycle/{file.name}" for file in (ROOT / "livekit_lifecycle").glob("*.py")
    }
    assert {*modules, "livekit_lifecycle/py.typed"} <= names
    shipped = {name.split("/")[0] for name in names}
    assert {part for part in shipped if not part.endswith(".dist-info")} == {"livekit_lifecycle"}


def test_it_works_away_from_the_checkout(wheel: Path, tmp_path: Path) -> None:
    script = (
        "import pickle, livekit_lifecycle as l\n"
        "assert l.__file__.startswith(__import__('sys').path[1]), l.__file__\n"
        "assert l.__version__\n"
        "l.presets.web(); l.LifecycleServer()\n"
        "from livekit_lifecycle import reader\n"
        "assert reader.parse({'lifecycle.version': '1'}).managed\n"
    )
    target = tmp_path / "site"
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(target)
    environment = {**os.environ, "PYTHONPATH": str(target)}
    subprocess.run([sys.executable, "-c", script], cwd=tmp_path, env=environment, check=True)


def test_its_metadata_says_what_it_needs(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        (name,) = (n for n in archive.namelist() if n.endswith(".dist-info/METADATA"))
        metadata = archive.read(name).decode()
    assert "Requires-Dist: livekit-agents<1.9,>=1.8.6" in metadata
    assert "Requires-Python: <3.14,>=3.10" in metadata
    needed = [line for line in metadata.splitlines() if line.startswith("Requires-Dist")]
    assert len([line for line in needed if "extra ==" not in line]) == 4
