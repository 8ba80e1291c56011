"""What the package itself logs, apart from what LiveKit does at the same time."""

from __future__ import annotations

import logging

import pytest


def our_records(caplog: pytest.LogCaptureFixture) -> list[logging.LogRecord]:
    """Records of the package's own logger.

    LiveKit's clients log from threads of their own, also some time after the test that had them.
    """
    return [record for record in caplog.records if record.name == "livekit_lifecycle"]
