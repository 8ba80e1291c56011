"""The kernel's counter, in every layout that it is found in."""

from __future__ import annotations

from pathlib import Path

import pytest

from livekit_lifecycle._oom import OomKills

LAYOUTS = {
    "version-2": ("0::/pod/a\n", "pod/a/memory.events"),
    "version-2-in-a-container": ("0::/\n", "memory.events"),
    "version-1": ("9:cpu:/\n4:memory:/pod/a\n0::/\n", "memory/pod/a/memory.oom_control"),
    "version-1-in-a-container": ("4:memory:/docker/x\n", "memory/memory.oom_control"),
}


def write(file: Path, kills: int) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(f"low 0\noom 7\noom_kill {kills}\noom_group_kill 0\n")


@pytest.mark.parametrize("layout", LAYOUTS)
def test_each_kill_explains_one_death(layout: str, tmp_path: Path) -> None:
    ours, counter = LAYOUTS[layout]
    (tmp_path / "self").write_text(ours)
    file = tmp_path / "cgroup" / counter
    write(file, 3)
    kills = OomKills(tmp_path / "cgroup", tmp_path / "self")
    assert not kills.explain_one(), "those from before our time explain nothing"
    write(file, 5)
    assert [kills.explain_one() for _ in range(3)] == [True, True, False]
    file.unlink()
    assert not kills.explain_one()


def test_where_nothing_can_be_read_nothing_is_explained(tmp_path: Path) -> None:
    assert not OomKills(tmp_path, tmp_path / "self").explain_one()
    (tmp_path / "self").write_text("0::/pod\n4:memory:/pod\n")
    assert not OomKills(tmp_path, tmp_path / "self").explain_one()
