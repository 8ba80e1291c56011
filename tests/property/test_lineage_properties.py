"""What is handed down comes back whole, whatever the app's own metadata is."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from livekit_lifecycle import RestartPolicy
from livekit_lifecycle.lineage import Lineage, join_metadata, split_metadata

texts = st.text() | st.just("\nlivekit_lifecycle: {}") | st.text().map(lambda t: t + "\n")
times = st.floats(min_value=0, max_value=1e10)
lineages = st.builds(Lineage, st.text(max_size=20), st.lists(times, max_size=5).map(tuple))


@given(texts, lineages)
def test_metadata_round_trip(own: str, lineage: Lineage) -> None:
    assert split_metadata(join_metadata(own, lineage)) == (own, lineage)


@given(
    st.integers(min_value=1, max_value=5),
    st.floats(min_value=0.1, max_value=100),
    st.lists(st.floats(min_value=0, max_value=50), max_size=30),
)
def test_never_more_restarts_than_allowed_within_any_window(
    max_restarts: int, within: float, gaps: list[float]
) -> None:
    policy = RestartPolicy(max_restarts=max_restarts, within=within)
    lineage, now, sent = Lineage(), 1000.0, list[float]()
    for gap in gaps:
        now += gap
        handed_down = lineage.after_crash(policy, "AJ", now)
        if handed_down is not None:
            lineage = handed_down
            sent.append(now)
    for at in sent:
        assert sum(at <= other < at + within for other in sent) <= max_restarts
