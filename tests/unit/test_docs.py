"""What the docs say is what the code does."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from livekit_lifecycle import Reason, State, _log, contract, presets
from livekit_lifecycle.contract import INTENTIONAL_REASONS

ROOT = Path(__file__).parent.parent.parent
README = (ROOT / "README.md").read_text()
ENDINGS = (ROOT / "docs" / "endings.md").read_text()


def rows(text: str) -> list[list[str]]:
    return [
        [cell.strip() for cell in line.strip("|").split("|")]
        for line in text.splitlines()
        if line.startswith("|")
    ]


def test_the_table_of_presets_has_the_constants() -> None:
    table = {row[0]: row for row in rows(README) if row[0].startswith("`presets.")}
    made = {
        "`presets.web()`": presets.web(),
        "`presets.mobile()`": presets.mobile(),
        "`presets.telephony()`": presets.telephony(),
        "`presets.meeting()`": presets.meeting(),
        "`presets.immediate()`": presets.immediate(),
    }
    assert set(table) == set(made)
    for name, options in made.items():
        assert table[name][2] == f"{options.reconnect.grace:g} s", name
        who = {"same": "the same identity", "any": "anyone"}[options.reconnect.follow]
        assert table[name][3] == (who if options.reconnect.grace else "nobody"), name


def test_the_table_of_endings_has_every_reason_with_its_exit() -> None:
    table = {
        row[1].strip("`"): row[0] for row in rows(ENDINGS) if row[0] in ("intentional", "crash")
    }
    assert set(table) == {reason.value for reason in Reason}
    for reason, exit_ in table.items():
        assert (exit_ == "intentional") is (Reason(reason) in INTENTIONAL_REASONS), reason


def test_every_state_and_key_of_the_docs_exists() -> None:
    keys = {value for name, value in vars(contract).items() if name.startswith("KEY_")}
    events = {value for name, value in vars(_log).items() if name.isupper()}
    rpc = {"lifecycle.bye"}
    for file in [ROOT / "README.md", *(ROOT / "docs").glob("*.md")]:
        for word in re.findall(r"`(lifecycle\.[a-z_]+)`", file.read_text()):
            assert word in keys | events | rpc, f"{file.name}: {word}"
    assert all(f"`{state.value}`" in ENDINGS for state in State)


@pytest.mark.parametrize("file", sorted([ROOT / "README.md", *(ROOT / "docs").glob("*.md")]))
def test_every_python_block_is_python(file: Path) -> None:
    for block in re.findall(r"```python\n(.*?)```", file.read_text(), re.DOTALL):
        body = "\n".join(f"    {line}" for line in block.splitlines())
        compile(f"async def block():\n{body}\n", file.name, "exec")


@pytest.mark.parametrize("file", sorted([ROOT / "README.md", *(ROOT / "docs").glob("*.md")]))
def test_every_link_leads_somewhere(file: Path) -> None:
    for link in re.findall(r"\]\(([^)#]+)\)", file.read_text()):
        if not link.startswith("https://"):
            assert (file.parent / link).exists(), link
