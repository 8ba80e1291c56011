/** Follow the agents of a LiveKit room: what each of them does, and how it ended. */
import {
  ConnectionState, DisconnectReason, ParticipantKind, type Participant, type RemoteParticipant,
  type Room, RoomEvent,
} from "livekit-client";

export type State = "starting" | "active" | "waiting" | "closing" | "closed";
export interface AgentExit {
  exit: "intentional" | "crash"; reason: string; detail: string; next: string;
}
/** What an agent's attributes say. All times are in ms; nothing but `managed` counts without it. */
export interface AgentStatus {
  managed: boolean; version: string; job: string; previous: string; state: State;
  deadlineMs: number | null; windowMs: number | null;
  drainMs: number | null; drainWindowMs: number | null;
  stalledMs: number | null; exit: AgentExit | null;
}
/** `unclear`: this page was cut off itself. `unmanaged`: the agent promises nothing. */
export interface AgentEnd {
  outcome: "intentional" | "crash" | "unclear" | "unmanaged"; exit: AgentExit | null;
}
/** One instance of an agent; `until` and `drainedBy` are times of `performance.now()`. */
export interface Agent {
  readonly identity: string; readonly sid: string; readonly status: AgentStatus;
  readonly present: boolean; readonly end: AgentEnd | null;
  readonly until: number | null; readonly drainedBy: number | null;
}

const STATES: readonly string[] = ["starting", "active", "waiting", "closing", "closed"];
const ROOM_OVER = ["room_deleted", "room_closed", "server_shutdown"];
const NO_RETURN = ["participant_removed", "room_deleted", "room_closed"];
const MEANT: Record<string, [reason: string, detail: string, next: string]> = {
  participant_removed: ["removed", "participant_removed", "end"],
  duplicate_identity: ["replaced", "duplicate_identity", "wait"],
  room_deleted: ["room_closed", "deleted", "end"],
  room_closed: ["room_closed", "empty", "end"],
  server_shutdown: ["server_shutdown", "", "end"],
};

export function parse(attributes: Readonly<Record<string, unknown>>): AgentStatus {
  const managed = text(attributes, "version") !== "";
  const from: typeof attributes = managed ? attributes : {};
  const state = text(from, "state");
  return {
    managed, version: text(from, "version"), job: text(from, "job"),
    previous: text(from, "previous"), state: STATES.includes(state) ? (state as State) : "active",
    deadlineMs: integer(from, "deadline"), windowMs: integer(from, "window"),
    drainMs: integer(from, "drain"), drainWindowMs: integer(from, "drain_window"),
    stalledMs: integer(from, "stalled"), exit: readExit(from),
  };
}

function readExit(from: Readonly<Record<string, unknown>>): AgentExit | null {
  const word = text(from, "exit");
  if (word === "") return null;
  const exit = word === "intentional" ? word : "crash";
  return {
    exit, reason: text(from, "reason") || "unknown", detail: cut(text(from, "detail")),
    next: text(from, "next") || (exit === "crash" ? "rejoin" : "end"),
  };
}

function text(from: Readonly<Record<string, unknown>>, key: string): string {
  const value = from[`lifecycle.${key}`];
  return typeof value === "string" ? value : "";
}

function integer(from: Readonly<Record<string, unknown>>, key: string): number | null {
  const value = text(from, key);
  return /^[0-9]{1,15}$/.test(value) ? Number(value) : null;
}

function cut(value: string): string {
  const bytes = new TextEncoder().encode(value.replace(/\p{Cs}/gu, "?")).subarray(0, 128);
  // as a stream, so that half a character at the end is dropped instead of replaced
  return new TextDecoder("utf-8", { ignoreBOM: true }).decode(bytes, { stream: true });
}

/** Name the ending of an agent that left; `reason` is LiveKit's in lower case, "" if unknown. */
export function decideEnd(status: AgentStatus, reason: string, cutOff: boolean): AgentEnd {
  if (!status.managed) return { outcome: "unmanaged", exit: null };
  if (status.exit) return { outcome: status.exit.exit, exit: status.exit };
  if (cutOff) return { outcome: "unclear", exit: null };
  const [word, detail, next] = MEANT[reason] ?? ["unknown", reason, "rejoin"];
  const exit = word === "unknown" ? "crash" : "intentional";
  return { outcome: exit, exit: { exit, reason: word, detail, next } };
}

/** ms to a deadline. `fresh`: written just now, so `window` holds whatever our clock says. */
export function millisecondsLeft(
  deadline: number | null, window: number | null, fresh: boolean, now: number,
): number | null {
  if (deadline === null) return null;
  const left = Math.max(0, deadline - now);
  return window === null ? left : fresh ? window : Math.min(left, window);
}

export class AgentWatcher {
  /** Every instance seen so far, the oldest first, those that have gone included. */
  readonly agents = new Map<string, Agent>();
  private latest = new Map<string, string>();
  private leaves = new Map<string, { reason: string; timer: Timer }>();
  private cutOff: boolean;
  private settling: Timer | undefined;
  private clockSkew = 0;

  /**
   * `changed` is given the agent and all agents so far; at once for those already there.
   * `settle` is how long a leave without a word is held back: joins may be told 3 s late.
   */
  constructor(
    private room: Room, private changed: (agent: Agent, all: Agent[]) => void,
    private settle = 4000,
  ) {
    this.cutOff = isReconnecting(room.state);
    room.on(RoomEvent.ParticipantConnected, this.seen)
      .on(RoomEvent.ParticipantAttributesChanged, this.attributesChanged)
      .on(RoomEvent.ParticipantDisconnected, this.left)
      .on(RoomEvent.ConnectionStateChanged, this.connection)
      .on(RoomEvent.Disconnected, this.disconnected);
    this.scan();
  }

  close(): void {
    this.room.off(RoomEvent.ParticipantConnected, this.seen)
      .off(RoomEvent.ParticipantAttributesChanged, this.attributesChanged)
      .off(RoomEvent.ParticipantDisconnected, this.left)
      .off(RoomEvent.ConnectionStateChanged, this.connection)
      .off(RoomEvent.Disconnected, this.disconnected);
    clearTimeout(this.settling);
    for (const key of [...this.leaves.keys()]) this.forgetLeave(key);
  }

  private scan(): void {
    for (const participant of [...this.room.remoteParticipants.values()]) this.seen(participant);
  }

  private attributesChanged = (_: unknown, participant: Participant): void => {
    this.seen(participant);
  };

  private seen = (participant: Participant): void => {
    // events that were held back during a reconnect may speak of one who has gone since
    if (this.room.remoteParticipants.get(participant.identity) === participant) {
      this.update(participant);
    }
  };

  private left = (participant: RemoteParticipant, disconnectReason?: DisconnectReason): void => {
    const latest = this.latest.get(participant.identity);
    const toldBefore = latest !== undefined && !this.agents.get(latest)?.present;
    const successor = this.room.remoteParticipants.get(participant.identity);
    if (toldBefore || (successor && successor !== participant)) return;
    const key = this.update(participant); // the exit may never have come as an event of its own
    if (key === undefined) return;
    const agent = this.put(key, { present: false });
    const reason = word(disconnectReason);
    // it may be its own reconnect, or the first we hear of ours: only time can tell
    const wait = agent.end || NO_RETURN.includes(reason) ? 0 : this.settle;
    this.leaves.set(key, { reason, timer: setTimeout(() => this.overdue(key), wait) });
    this.tell(agent);
  };

  private update(participant: Participant): string | undefined {
    const { identity, sid, attributes } = participant;
    if (participant.kind !== ParticipantKind.AGENT || "lk.publish_on_behalf" in attributes) return;
    const status = parse(attributes);
    const key = JSON.stringify([identity, status.job]);
    const latest = this.latest.get(identity);
    const before = latest === undefined ? undefined : this.agents.get(latest);
    if (latest !== undefined && before && latest !== key) {
      const same = before.sid === sid;
      if (same && before.status.managed && !status.managed) return latest; // the last will stands
      if (same && !before.status.managed) this.introduced(latest, key, before);
      else this.superseded(latest, before);
    }
    this.latest.set(identity, key);
    this.refresh(key, identity, sid, status);
    return key;
  }

  private refresh(key: string, identity: string, sid: string, status: AgentStatus): void {
    this.forgetLeave(key);
    const old = this.agents.get(key);
    const was = old?.status;
    status.exit = was?.exit ?? status.exit; // frozen once written
    const fresh = old !== undefined && old.present && !this.cutOff;
    const at = (deadline: number | null, window: number | null): number | null => {
      const left = millisecondsLeft(deadline, window, fresh, Date.now() - this.clockSkew);
      return left === null ? null : performance.now() + left;
    };
    const kept = was?.deadlineMs === status.deadlineMs && was?.windowMs === status.windowMs;
    const keptDrain = was?.drainMs === status.drainMs && was?.drainWindowMs === status.drainWindowMs;
    const until = (kept && old?.until) || at(status.deadlineMs, status.windowMs);
    const drainedBy = (keptDrain && old?.drainedBy) || at(status.drainMs, status.drainWindowMs);
    const end = status.exit && decideEnd(status, "", false);
    const agent = this.put(key, { identity, sid, status, present: true, end, until, drainedBy });
    if (JSON.stringify(old) !== JSON.stringify(agent)) this.tell(agent);
  }

  private introduced(from: string, key: string, agent: Agent): void {
    this.forgetLeave(from);
    this.agents.delete(from);
    this.agents.set(key, agent);
  }

  private superseded(key: string, agent: Agent): void {
    const leave = this.leaves.get(key);
    // LiveKit tells no reason where the identity is taken over within one batch
    const reason = leave?.reason || "duplicate_identity";
    if (agent.present || leave) this.judge(key, reason, this.cutOff);
  }

  private overdue(key: string): void {
    const leave = this.leaves.get(key);
    if (leave && !this.cutOff) this.judge(key, leave.reason, false);
  }

  private judge(key: string, reason: string, cutOff: boolean): void {
    this.forgetLeave(key);
    const old = this.agents.get(key);
    if (!old) return;
    const end = old.end ?? decideEnd(old.status, reason, cutOff);
    this.tell(this.put(key, { present: false, end, until: null, drainedBy: null }));
  }

  private connection = (state: ConnectionState): void => {
    clearTimeout(this.settling);
    if (isReconnecting(state)) this.cutOff = true;
    if (state !== ConnectionState.Connected) return;
    const joined = this.room.localParticipant.joinedAt?.getTime();
    if (!this.cutOff && joined) {
      // LiveKit tells whole seconds, so less than this is no proof of a wrong clock
      const skew = Date.now() - joined;
      this.clockSkew = Math.abs(skew) > 5000 ? skew : 0;
    }
    this.scan();
    if (this.cutOff) this.settling = setTimeout(this.settled, this.settle);
  };

  private settled = (): void => {
    this.scan();
    for (const [key, agent] of [...this.agents]) {
      const missed = agent.present && !this.room.remoteParticipants.has(agent.identity);
      if (this.leaves.has(key) || missed) this.judge(key, "", true);
    }
    this.cutOff = false;
  };

  private disconnected = (ownReason?: DisconnectReason): void => {
    const reason = word(ownReason);
    for (const [key, agent] of [...this.agents]) {
      const leave = this.leaves.get(key);
      if (leave?.reason && !this.cutOff) this.judge(key, leave.reason, false);
      else if (leave || agent.present) this.judge(key, reason, !ROOM_OVER.includes(reason));
    }
    clearTimeout(this.settling);
    this.cutOff = false;
  };

  private forgetLeave(key: string): void {
    clearTimeout(this.leaves.get(key)?.timer);
    this.leaves.delete(key);
  }

  private tell(agent: Agent): void {
    this.changed(agent, [...this.agents.values()]);
  }

  private put(key: string, changes: Partial<Agent>): Agent {
    const agent = { ...this.agents.get(key), ...changes } as Agent;
    this.agents.set(key, agent);
    return agent;
  }
}

type Timer = ReturnType<typeof setTimeout>;

function isReconnecting(state: ConnectionState): boolean {
  return state === ConnectionState.Reconnecting || state === ConnectionState.SignalReconnecting;
}

function word(reason: DisconnectReason | undefined): string {
  return reason ? (DisconnectReason[reason]?.toLowerCase() ?? "") : "";
}
