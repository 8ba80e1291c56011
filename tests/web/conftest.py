"""A real Chromium on the example page."""

from __future__ import annotations

from tests.web.fixtures import browser, hire, page_built, room_name, site, told_server, visit

__all__ = ["browser", "hire", "page_built", "room_name", "site", "told_server", "visit"]
