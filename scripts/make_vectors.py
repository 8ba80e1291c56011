"""Write the generated half of tests/vectors/attributes.json, which every reader is held against.

The vectors made by hand stay as they are in the file: their expected values were written by a
person. The generated ones say what the Python reader makes of random attributes, so that readers
in other languages can be compared with it. The same seed gives the same file.

    python scripts/make_vectors.py
"""

from __future__ import annotations

import json
import random
from dataclasses import asdict
from pathlib import Path
from typing import Any, Final, cast

from livekit.protocol.models import DisconnectReason

from livekit_lifecycle import contract
from livekit_lifecycle.contract import AgentExit, Exit, Next, Reason, State, encode, parse
from livekit_lifecycle.reading import decide_end, milliseconds_left

PATH: Final = Path(__file__).parent.parent / "tests" / "vectors" / "attributes.json"
SEED: Final = 20_260_101
NOW: Final = 1_760_000_000_000

Vector = dict[str, Any]

_KEYS: Final = [value for name, value in vars(contract).items() if name.startswith("KEY_")]
_WORDS: Final = [
    *(word.value for word in (*State, *Exit, *Next, *Reason)),
    *("participant_removed", "code:3", "SIGSEGV", "llm", "grace", "user_bye", "1", "2", "1.1"),
    *("AJ_7Hq2xWcVb9Zk", "AJ_mP4sTd8LfNyR", "Tschüss, bis später", "再见", "👋🏽 bye", "\ud83d"),
    *("", " ", "active ", "ACTIVE", "null", "undefined", "[object Object]", "\u0000", "\n"),
    *("__proto__", "constructor", "toString", "x" * 127 + "é", "é" * 64 + "!", "👋" * 33),
]
_NUMBERS: Final = [
    *("0", "7", "007", "15000", "1760000015000", "999999999999999", "1000000000000000"),
    *("9007199254740993", "-1", "+1", "1.0", "1e3", "0x10", "1_000", " 1", "1 ", "1\n", "NaN"),
    *("Infinity", "٣", "\uff11\uff12", "²", "", "9" * 400),
]
_NO_STRINGS: Final = [None, True, False, 0, 1, 1.5, -3, 10**18, [], ["1"], {}, {"a": "1"}]


def status_of(attributes: Vector) -> Vector:
    """What the Python reader makes of ``attributes``, as JSON."""
    # the wire's type is only a promise, and readers are tested with what breaks it
    return _plain(asdict(parse(cast("dict[str, str]", attributes))))


def end_of(attributes: Vector, reason: str | None, *, cut_off: bool) -> Vector:
    """How the Python reader names a leave, as JSON."""
    status = parse(cast("dict[str, str]", attributes))
    return _plain(asdict(decide_end(status, (reason or "").lower(), cut_off=cut_off)))


def generate() -> dict[str, list[Vector]]:
    """Return the generated vectors."""
    rng = random.Random(SEED)  # noqa: S311 - nothing secret about test data
    statuses = [_status_vector(f"generated {i}", _attributes(rng, i)) for i in range(160)]
    ends: list[Vector] = []
    for i in range(120):
        reason = rng.choice([None, *DisconnectReason.keys()[1:]])
        attributes, cut_off = _attributes(rng, i), rng.random() < 0.3
        ends.append(
            {
                "name": f"generated {i}",
                "attributes": attributes,
                "reason": reason,
                "cut_off": cut_off,
                "end": end_of(attributes, reason, cut_off=cut_off),
            }
        )
    return {"statuses": statuses, "ends": ends, "countdowns": [*map(_countdown, [rng] * 40)]}


def _attributes(rng: random.Random, i: int) -> Vector:
    kind = i % 4
    if kind == 0:
        return dict(encode(_likely(rng)))
    attributes: Vector = {key: _value(rng, key, kind) for key in _KEYS if rng.random() < 0.6}
    if rng.random() < 0.9:
        attributes[contract.KEY_VERSION] = rng.choice(["1", "1", "2", "99.3-beta"])
    attributes |= rng.choice([{}, {"lk.agent.state": "listening"}, {"lifecycle.": "1"}])
    return attributes


def _likely(rng: random.Random) -> contract.AgentStatus:
    reason = rng.choice(list(Reason))
    meant = reason in contract.INTENTIONAL_REASONS
    exit_ = AgentExit(
        exit=Exit.INTENTIONAL if meant else Exit.CRASH,
        reason=reason.value,
        detail=rng.choice(["", "done", "user_left", "Tschüss"]),
        next=rng.choice(list(Next)).value,
    )
    return contract.AgentStatus(
        managed=True,
        version="1",
        job=f"AJ_{rng.randrange(10**9)}",
        state=rng.choice(list(State)),
        deadline_ms=rng.choice([None, NOW + 15_000]),
        window_ms=rng.choice([None, 15_000]),
        drain_ms=rng.choice([None, NOW + 60_000]),
        exit=rng.choice([None, exit_]),
    )


def _value(rng: random.Random, key: str, kind: int) -> object:
    if kind == 3 and rng.random() < 0.3:
        return rng.choice(_NO_STRINGS)
    numeric = key.endswith(("deadline", "window", "drain", "stalled"))
    return rng.choice(_NUMBERS if numeric and rng.random() < 0.8 else _WORDS)


def _countdown(rng: random.Random) -> Vector:
    window = rng.choice([None, 0, 5_000, 15_000])
    deadline = rng.choice([None, 0, NOW - 1, NOW, NOW + 9_000, NOW + 15_000, NOW + 3_600_000])
    fresh, now = rng.random() < 0.5, NOW + rng.choice([0, 0, -3_600_000, 3_600_000])
    left = milliseconds_left(deadline, window, fresh=fresh, now=now)
    return {
        "name": "generated",
        "deadline": deadline,
        "window": window,
        "fresh": fresh,
        "now": now,
        "left": left,
    }


def _status_vector(name: str, attributes: Vector) -> Vector:
    return {"name": name, "attributes": attributes, "status": status_of(attributes)}


def _plain(value: Vector) -> Vector:
    return cast("Vector", json.loads(json.dumps(value)))


def by_hand(vectors: list[Vector]) -> list[Vector]:
    """Return those of ``vectors`` that no program made."""
    return [vector for vector in vectors if not vector["name"].startswith("generated")]


def main() -> None:
    """Rewrite the file."""
    before = json.loads(PATH.read_text(encoding="ascii"))
    lines: list[str] = []
    for group, vectors in generate().items():
        rows = ",\n".join(json.dumps(v) for v in [*by_hand(before[group]), *vectors])
        lines.append(f'"{group}": [\n{rows}\n]')
    PATH.write_text("{\n" + ",\n".join(lines) + "\n}\n", encoding="ascii")


if __name__ == "__main__":
    main()
