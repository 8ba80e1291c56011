/** The watcher against a room whose events come in the order that livekit-client's were seen in. */
import { EventEmitter } from "node:events";
import {
  ConnectionState, DisconnectReason, ParticipantKind, type Room, RoomEvent,
} from "livekit-client";
import { afterEach, beforeEach, describe, expect, test, vi } from "vitest";
import { type Agent, AgentWatcher } from "../src/reader";

interface Person {
  identity: string; sid: string; kind: ParticipantKind; attributes: Record<string, string>;
}

const SETTLE = 4000;
const GOODBYE = { "lifecycle.exit": "intentional", "lifecycle.reason": "completed" };
let sids = 0;

function will(job = "AJ_1"): Record<string, string> {
  return { "lifecycle.version": "1", "lifecycle.job": job, "lifecycle.state": "active" };
}

function agent(attributes: Record<string, string> = will(), identity = "agent"): Person {
  return { identity, sid: `PA_${sids++}`, kind: ParticipantKind.AGENT, attributes };
}

class FakeRoom extends EventEmitter {
  state = ConnectionState.Connected;
  localParticipant: { joinedAt?: Date } = {};
  remoteParticipants = new Map<string, Person>();

  join(person: Person): Person {
    this.remoteParticipants.set(person.identity, person);
    this.emit(RoomEvent.ParticipantConnected, person);
    return person;
  }

  leave(person: Person, reason?: DisconnectReason): void {
    this.remoteParticipants.delete(person.identity);
    this.emit(RoomEvent.ParticipantDisconnected, person, reason);
  }

  write(person: Person, attributes: Record<string, string>): void {
    person.attributes = { ...person.attributes, ...attributes };
    this.emit(RoomEvent.ParticipantAttributesChanged, attributes, person);
  }

  become(state: ConnectionState): void {
    this.state = state;
    this.emit(RoomEvent.ConnectionStateChanged, state);
  }

  /** Everyone is told to have left before the room says what is going on. */
  startFullReconnect(): void {
    for (const person of [...this.remoteParticipants.values()]) this.leave(person);
    this.become(ConnectionState.Reconnecting);
  }

  finishFullReconnect(...people: Person[]): void {
    for (const person of people) this.remoteParticipants.set(person.identity, person);
    this.become(ConnectionState.Connected);
    for (const person of people) this.emit(RoomEvent.ParticipantConnected, person);
  }
}

let room: FakeRoom;
let told: Agent[];
let watcher: AgentWatcher;

function watch(): AgentWatcher {
  return new AgentWatcher(room as unknown as Room, (one) => told.push(one), SETTLE);
}

beforeEach(() => {
  vi.useFakeTimers();
  room = new FakeRoom();
  told = [];
  watcher = watch();
});

afterEach(() => {
  watcher.close();
  expect(room.eventNames()).toEqual([]);
  vi.useRealTimers();
});

function settle(): void {
  vi.advanceTimersByTime(SETTLE + 1);
}

function ends(): string[] {
  const all = [...watcher.agents.values()].filter((one) => one.end);
  return all.map(({ status, end }) =>
    [status.job, end?.outcome, end?.exit?.reason, end?.exit?.detail].filter(Boolean).join(" "),
  );
}

describe("the eight pitfalls", () => {
  test("1: those already there are found at attach and at connect", () => {
    room.remoteParticipants.set("agent", agent());
    const all = vi.fn();
    new AgentWatcher(room as unknown as Room, all).close();
    const one = expect.objectContaining({ identity: "agent", present: true });
    expect(all.mock.calls).toEqual([[one, [one]]]);
    room.become(ConnectionState.Connected);
    expect([...watcher.agents.values()].map((one) => one.present)).toEqual([true]);
  });

  test("2: the exit may be in the join already", () => {
    room.join(agent({ ...will(), ...GOODBYE }));
    expect(ends()).toEqual(["AJ_1 intentional completed"]);
  });

  test("3: the page's own full reconnect is nobody's end", () => {
    room.join(agent());
    room.startFullReconnect();
    vi.advanceTimersByTime(60_000);
    expect(ends()).toEqual([]);
    room.finishFullReconnect(agent());
    settle();
    expect(ends()).toEqual([]);
    expect(told.at(-1)?.present).toBe(true);
  });

  test("3: nor is it with a goodbye written before, whose agent is still there", () => {
    room.join(agent({ ...will(), ...GOODBYE }));
    room.startFullReconnect();
    vi.advanceTimersByTime(60_000);
    room.finishFullReconnect(agent({ ...will(), ...GOODBYE }));
    settle();
    expect(ends()).toEqual(["AJ_1 intentional completed"]);
    expect(told.at(-1)?.present).toBe(true);
  });

  test("4: a ghost that is not listed is ignored", () => {
    room.emit(RoomEvent.ParticipantConnected, agent());
    room.emit(RoomEvent.ParticipantAttributesChanged, {}, agent());
    settle();
    expect(told).toEqual([]);
  });

  test("5: one object, two instances", () => {
    const one = room.join(agent(will("AJ_1")));
    one.sid = "PA_other";
    room.write(one, will("AJ_2"));
    expect(ends()).toEqual(["AJ_1 intentional replaced duplicate_identity"]);
    expect(told.at(-1)).toMatchObject({ present: true, end: null, status: { job: "AJ_2" } });
  });

  test("6: the exit may be known by the leave only", () => {
    const one = room.join(agent());
    one.attributes = { ...one.attributes, ...GOODBYE };
    room.leave(one, DisconnectReason.CLIENT_INITIATED);
    expect(ends()).toEqual(["AJ_1 intentional completed"]);
  });

  test.each([true, false])("7: a leave during an own reconnect is unclear (full: %s)", (full) => {
    const one = room.join(agent());
    if (full) room.startFullReconnect();
    else {
      room.become(ConnectionState.SignalReconnecting);
      room.leave(one, DisconnectReason.CONNECTION_TIMEOUT);
    }
    vi.advanceTimersByTime(10_000);
    room.become(ConnectionState.Connected);
    expect(ends()).toEqual([]);
    settle();
    expect(ends()).toEqual(["AJ_1 unclear"]);
  });

  test("8: an agent that comes back after a server's restart lives", () => {
    room.join(agent());
    room.startFullReconnect();
    room.finishFullReconnect();
    settle();
    room.join(agent());
    expect(ends()).toEqual([]);
    expect(told.at(-1)?.present).toBe(true);
  });
});

describe("leaves", () => {
  test.each([
    [undefined, "AJ_1 crash unknown"],
    [DisconnectReason.UNKNOWN_REASON, "AJ_1 crash unknown"],
    [DisconnectReason.CLIENT_INITIATED, "AJ_1 crash unknown client_initiated"],
    [DisconnectReason.CONNECTION_TIMEOUT, "AJ_1 crash unknown connection_timeout"],
    [99 as DisconnectReason, "AJ_1 crash unknown"],
    [DisconnectReason.PARTICIPANT_REMOVED, "AJ_1 intentional removed participant_removed"],
    [DisconnectReason.DUPLICATE_IDENTITY, "AJ_1 intentional replaced duplicate_identity"],
    [DisconnectReason.ROOM_DELETED, "AJ_1 intentional room_closed deleted"],
    [DisconnectReason.ROOM_CLOSED, "AJ_1 intentional room_closed empty"],
    [DisconnectReason.SERVER_SHUTDOWN, "AJ_1 intentional server_shutdown"],
  ])("with reason %s and no exit", (reason, end) => {
    room.leave(room.join(agent()), reason);
    settle();
    expect(ends()).toEqual([end]);
  });

  test("an agent that reconnects did not leave", () => {
    room.leave(room.join(agent()), DisconnectReason.CLIENT_INITIATED);
    vi.advanceTimersByTime(SETTLE - 500);
    room.join(agent());
    settle();
    expect(ends()).toEqual([]);
  });

  test("a removed agent is not waited for, a lost one is", () => {
    room.leave(room.join(agent()), DisconnectReason.PARTICIPANT_REMOVED);
    room.leave(room.join(agent(will("AJ_2"), "agent-2")), DisconnectReason.CONNECTION_TIMEOUT);
    vi.advanceTimersByTime(10);
    expect(ends()).toEqual(["AJ_1 intentional removed participant_removed"]);
  });

  test("a leave that is told twice is one", () => {
    const one = room.join(agent());
    room.leave(one, DisconnectReason.CONNECTION_TIMEOUT);
    settle();
    const before = told.length;
    room.leave(one, DisconnectReason.CONNECTION_TIMEOUT);
    settle();
    expect(told.length).toBe(before);
  });

  test("the late leave of an object that was replaced is ignored", () => {
    room.join(agent(will("AJ_2")));
    room.emit(RoomEvent.ParticipantDisconnected, agent(will("AJ_1")));
    settle();
    expect(ends()).toEqual([]);
  });

  test("an unmanaged agent never crashes", () => {
    room.leave(room.join(agent({})), DisconnectReason.CONNECTION_TIMEOUT);
    settle();
    expect(ends()).toEqual(["unmanaged"]);
  });

  test("users, forgers and avatars are no agents", () => {
    room.join({ ...agent(), identity: "forger", kind: ParticipantKind.STANDARD });
    room.join(agent({ ...will(), "lk.publish_on_behalf": "agent" }, "avatar"));
    settle();
    expect(told).toEqual([]);
  });

  test("an agent may introduce itself after it joined", () => {
    room.write(room.join(agent({})), will());
    expect([...watcher.agents.values()].map((one) => one.status.job)).toEqual(["AJ_1"]);
    expect(ends()).toEqual([]);
  });

  test("the last will cannot be taken back, and an exit is never changed", () => {
    const one = room.join(agent());
    one.attributes = {};
    room.write(one, {});
    expect(watcher.agents.size).toBe(1);
    room.write(one, { ...will(), ...GOODBYE });
    room.write(one, { "lifecycle.exit": "crash" });
    room.leave(one);
    settle();
    expect(ends()).toEqual(["AJ_1 intentional completed"]);
  });

  test("a successor of one whose leave had a reason", () => {
    room.leave(room.join(agent()), DisconnectReason.CONNECTION_TIMEOUT);
    room.join(agent(will("AJ_2")));
    expect(ends()).toEqual(["AJ_1 crash unknown connection_timeout"]);
  });

  test("a successor that came during an own reconnect", () => {
    room.join(agent());
    room.startFullReconnect();
    room.finishFullReconnect(agent(will("AJ_2")));
    expect(ends()).toEqual(["AJ_1 unclear"]);
  });

  test("a leave that was never told is seen after an own reconnect", () => {
    room.join(agent());
    room.become(ConnectionState.SignalReconnecting);
    room.remoteParticipants.clear();
    room.become(ConnectionState.Connected);
    settle();
    expect(ends()).toEqual(["AJ_1 unclear"]);
  });

  test("a second reconnect before the first has settled", () => {
    room.join(agent());
    room.startFullReconnect();
    room.become(ConnectionState.Connected);
    vi.advanceTimersByTime(SETTLE / 2);
    room.become(ConnectionState.Reconnecting);
    vi.advanceTimersByTime(60_000);
    expect(ends()).toEqual([]);
    room.finishFullReconnect(agent());
    settle();
    expect(ends()).toEqual([]);
  });

  test("a watch that begins in the middle of a reconnect", () => {
    watcher.close();
    const one = room.join(agent());
    room.state = ConnectionState.Reconnecting;
    watcher = watch();
    room.leave(one, DisconnectReason.CONNECTION_TIMEOUT);
    room.become(ConnectionState.Connected);
    settle();
    expect(ends()).toEqual(["AJ_1 unclear"]);
  });

  test("a leave before the page's own end keeps its reason", () => {
    room.leave(room.join(agent()), DisconnectReason.CONNECTION_TIMEOUT);
    room.emit(RoomEvent.Disconnected, DisconnectReason.CLIENT_INITIATED);
    expect(ends()).toEqual(["AJ_1 crash unknown connection_timeout"]);
  });

  test("the end of one stays beside its successor by another identity", () => {
    const one = room.join(agent());
    room.join(agent(will("AJ_2"), "agent-2"));
    room.leave(one, DisconnectReason.CONNECTION_TIMEOUT);
    settle();
    expect(ends()).toEqual(["AJ_1 crash unknown connection_timeout"]);
    expect(watcher.agents.size).toBe(2);
  });

  test.each([
    [DisconnectReason.ROOM_DELETED, "AJ_1 intentional room_closed deleted"],
    [DisconnectReason.CLIENT_INITIATED, "AJ_1 unclear"],
    [undefined, "AJ_1 unclear"],
  ])("the page's own end with reason %s", (reason, end) => {
    const one = room.join(agent());
    room.leave(one);
    room.become(ConnectionState.Disconnected);
    room.emit(RoomEvent.Disconnected, reason);
    expect(ends()).toEqual([end]);
  });
});

describe("deadlines", () => {
  const hour = 3_600_000;
  const waiting = (from: number): Record<string, string> => ({
    "lifecycle.state": "waiting", "lifecycle.deadline": String(from + 15_000),
    "lifecycle.window": "15000",
  });
  const left = (): number => (told.at(-1)?.until ?? 0) - performance.now();

  test.each([0, hour, -hour])("written just now, clock off by %s ms", (skew) => {
    room.write(room.join(agent()), waiting(Date.now() - skew));
    expect(left()).toBeCloseTo(15_000, -1);
  });

  test("another attribute does not start it again", () => {
    const one = room.join(agent());
    room.write(one, waiting(Date.now()));
    vi.advanceTimersByTime(5000);
    room.write(one, { "lk.agent.state": "listening", "lifecycle.stalled": "1" });
    expect(left()).toBeCloseTo(10_000, -1);
  });

  test.each([0, hour, -hour])("a late joiner whose clock is off by %s ms", (skew) => {
    const real = Date.now() - skew;
    room.localParticipant.joinedAt = new Date(real - 300);
    room.remoteParticipants.set("agent", agent({ ...will(), ...waiting(real - 6000) }));
    room.become(ConnectionState.Connected);
    expect(Math.abs(left() - 9000)).toBeLessThan(400);
  });
});
