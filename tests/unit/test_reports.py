"""The list of reports names tests that exist, and every case is in it."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).parent.parent.parent
REPORTS = (ROOT / "docs" / "reports.md").read_text()
INTEGRATION = ROOT / "tests" / "integration"


def test_every_test_that_the_list_names_exists() -> None:
    named = re.findall(r"`([\w/]+\.py)::(\w+)`", REPORTS)
    assert named
    for file, test in named:
        assert f"def {test}(" in (INTEGRATION / file).read_text(), f"{file}::{test}"


def test_every_case_is_in_the_list() -> None:
    for file in (INTEGRATION / "cases").glob("test_*.py"):
        for test in re.findall(r"^(?:async )?def (test_\w+)\(", file.read_text(), re.MULTILINE):
            assert f"`cases/{file.name}::{test}`" in REPORTS, test


def test_every_report_that_a_case_names_is_in_the_list() -> None:
    for file in (INTEGRATION / "cases").glob("test_*.py"):
        for report in re.findall(r"\b([\w.-]+/[\w.-]+#\d+)", file.read_text()):
            assert report in REPORTS, report
