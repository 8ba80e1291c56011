"""Everything in this folder runs real processes."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.endings import the_ending_did_happen

__all__ = ["the_ending_did_happen"]

HERE = Path(__file__).parent


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if item.path.is_relative_to(HERE):
            item.add_marker(pytest.mark.integration)
