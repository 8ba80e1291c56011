"""Everything in this folder runs real processes."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.endings import the_ending_did_happen
from tests.harness import Client

__all__ = ["the_ending_did_happen"]

HERE = Path(__file__).parent


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if item.path.is_relative_to(HERE):
            item.add_marker(pytest.mark.integration)


@pytest.fixture(autouse=True)
def every_client_has_left() -> Iterator[None]:
    """Fail a test that leaves a client in its room."""
    yield
    left = [client.identity for client in Client.everyone if client.room.isconnected()]
    assert not left, f"still connected: {left}"
