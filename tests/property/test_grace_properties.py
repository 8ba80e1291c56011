"""The grace and the limits under any history, on a clock that only the test moves."""

from __future__ import annotations

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from livekit_lifecycle import Limits, Reconnect, State
from livekit_lifecycle.grace import Action, End, Grace, Waiting

PEOPLE = ("ann", "bob", "carl")
REASONS = ("client_initiated", "connection_timeout", "unknown_reason", "participant_removed")
limit = st.none() | st.sampled_from([20.0, 45.0, 90.0])


class History(RuleBasedStateMachine):
    """Joins, leaves, speech, byes and time, in any order."""

    @initialize(
        seconds=st.sampled_from([1.0, 5.0, 30.0]),
        follow=st.sampled_from(["same", "any"]),
        broken=st.booleans(),
        max_duration=limit,
        idle=limit,
        no_show=limit,
    )
    def start(
        self,
        seconds: float,
        follow: str,
        broken: bool,
        max_duration: float | None,
        idle: float | None,
        no_show: float | None,
    ) -> None:
        self.now = 0.0
        self.reconnect = Reconnect(grace=seconds, follow=follow, broken_link_only=broken)  # type: ignore[arg-type]
        self.limits = Limits(max_duration=max_duration, idle=idle, no_show=no_show)
        self.grace = Grace(self.reconnect, self.limits, 0.0)
        self.here: set[str] = set()
        self.ends: list[End] = []
        self.away_since: float | None = None
        self.busy = False
        self.quiet_since = 0.0

    def note(self, actions: list[Action]) -> None:
        for action in actions:
            if isinstance(action, End):
                self.ends.append(action)
                if getattr(action.evidence, "limit", "") == "grace":
                    assert not self.user_is_here()
            if isinstance(action, Waiting):
                assert action.deadline == self.now + self.reconnect.grace

    @property
    def anyone(self) -> bool:
        return self.reconnect.follow == "any"

    def user_is_here(self) -> bool:
        return bool(self.here) if self.anyone else self.grace.user in self.here

    @rule(who=st.sampled_from(PEOPLE))
    def join(self, who: str) -> None:
        first = not self.grace.user
        self.here.add(who)
        self.note(self.grace.joined(who, self.now))
        if first or (self.away_since is not None and self.user_is_here()):
            self.quiet_since = self.now
        if self.user_is_here():
            self.away_since = None

    @rule(who=st.sampled_from(PEOPLE), reason=st.sampled_from(REASONS))
    def leave(self, who: str, reason: str) -> None:
        user = self.grace.user
        was_here = bool(user) and self.user_is_here()
        self.here.discard(who)
        self.note(self.grace.left(who, reason, self.now))
        if was_here and not self.user_is_here():
            self.away_since = self.now
        elif self.anyone and self.grace.user != user:
            self.quiet_since = self.now  # another one is the user now

    @rule(busy=st.booleans())
    def speak(self, busy: bool) -> None:
        self.busy = busy
        self.quiet_since = self.now
        self.grace.activity(self.now, busy=busy)

    @precondition(lambda self: self.grace.user in self.here)
    @rule()
    def say_bye(self) -> None:
        self.note(self.grace.bye(self.grace.user))

    @rule(seconds=st.floats(min_value=0.0, max_value=40.0))
    def pass_time(self, seconds: float) -> None:
        # as the loop's timer does: stop wherever there is something to do
        until = self.now + seconds
        while (at := self.grace.next_tick(self.now)) is not None and at <= until:
            self.now = max(self.now, at)
            self.note(self.grace.tick(self.now))
        self.now = until
        self.note(self.grace.tick(self.now))

    @invariant()
    def never_two_ends(self) -> None:
        assert len(self.ends) <= 1
        assert self.grace.ended is bool(self.ends)

    @invariant()
    def no_deadline_is_missed(self) -> None:
        if self.ends:
            return
        given = self.limits.given()
        if self.away_since is not None and self.reconnect is not None:
            assert self.now < self.away_since + self.reconnect.grace
        if "max_duration" in given:
            assert self.now < given["max_duration"]
        if "no_show" in given and not self.grace.user:
            assert self.now < given["no_show"]
        if "idle" in given and self.grace.user and not self.busy:
            assert self.now < self.quiet_since + given["idle"]

    @invariant()
    def the_state_is_what_the_room_says(self) -> None:
        if not self.grace.user:
            assert self.grace.state is State.STARTING
        elif not self.ends:
            expected = State.ACTIVE if self.user_is_here() else State.WAITING
            assert self.grace.state is expected


TestHistory = History.TestCase
TestHistory.settings = settings(max_examples=1000, stateful_step_count=40, deadline=None)
