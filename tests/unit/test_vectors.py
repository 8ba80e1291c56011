"""Python against the vectors that every reader is held against."""

from __future__ import annotations

import importlib.util
import json
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from livekit_lifecycle.reader import milliseconds_left

ROOT = Path(__file__).parent.parent.parent

Vector = dict[str, Any]


def _script() -> ModuleType:
    spec = importlib.util.spec_from_file_location("make_vectors", ROOT / "scripts/make_vectors.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


script = _script()
VECTORS: dict[str, list[Vector]] = json.loads(script.PATH.read_text(encoding="ascii"))


def _name(vector: Vector) -> str:
    return ascii(vector["name"])


@pytest.mark.parametrize("vector", VECTORS["statuses"], ids=_name)
def test_status(vector: Vector) -> None:
    assert script.status_of(vector["attributes"]) == vector["status"]


@pytest.mark.parametrize("vector", VECTORS["ends"], ids=_name)
def test_end(vector: Vector) -> None:
    end = script.end_of(vector["attributes"], vector["reason"], cut_off=vector["cut_off"])
    assert end == vector["end"]


@pytest.mark.parametrize("vector", VECTORS["countdowns"], ids=_name)
def test_countdown(vector: Vector) -> None:
    left = milliseconds_left(
        vector["deadline"], vector["window"], fresh=vector["fresh"], now=vector["now"]
    )
    assert left == vector["left"]


def test_the_generated_vectors_are_what_the_script_writes() -> None:
    for group, vectors in script.generate().items():
        by_hand = script.by_hand(VECTORS[group])
        assert VECTORS[group] == [*by_hand, *vectors]


def test_there_are_enough_made_by_hand() -> None:
    by_hand = [len(script.by_hand(VECTORS[group])) for group in ("statuses", "ends", "countdowns")]
    assert by_hand[0] > 80
    assert by_hand[1] > 80
    assert by_hand[2] > 10
