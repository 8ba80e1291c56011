import { ConnectionState, Room, RoomEvent, Track } from "livekit-client";
import { type Agent, AgentWatcher } from "./reader";
import { agentWords, endWords, facts, seconds, type Words, words } from "./words";

const ENDINGS: Record<string, string> = {
  goodbye: "Say goodbye",
  handoff: "Hand over",
  drain: "Update the server",
  exception: "Raise an exception",
  exit: "Exit with code 3",
  kill: "Kill its process",
  worker: "Kill the worker",
  remove: "Remove the agent",
  room: "Close the room",
};
const BYE_TIMEOUT_MS = 1500;
const PATIENCE_MS = 20_000; // a request for an agent may get none

interface Heard {
  exit: string; reason: string; detail: string; identity: string;
}

const query = new URLSearchParams(location.search);
// kept for this tab only: a reload is the same caller, a second tab is somebody else
const callName = keep("room", () => `desk-${randomName()}`);
const caller = keep("identity", () => `caller-${randomName()}`);

let room: Room | undefined;
let watcher: AgentWatcher | undefined;
let joining = false;
let hungUp = false;
let failure = "";
let asked = false;
let aloneSince: number | undefined;

const card = element("card");
const ask = (name: string, init?: RequestInit): Promise<Response> =>
  fetch(`/api/${name}`, { ...init, signal: AbortSignal.timeout(10_000) });
const post = (name: string, body: object): Promise<Response> =>
  ask(name, { method: "POST", body: JSON.stringify(body) });

async function join(): Promise<void> {
  leave();
  joining = true;
  hungUp = asked = false;
  failure = "";
  aloneSince = undefined;
  const next = new Room();
  room = next;
  next
    .on(RoomEvent.ConnectionStateChanged, render)
    .on(RoomEvent.TrackSubscribed, (track) => {
      if (track.kind === Track.Kind.Audio) document.body.append(track.attach());
    })
    .on(RoomEvent.TrackUnsubscribed, (track) => track.detach().forEach((one) => one.remove()));
  watcher = new AgentWatcher(next, render);
  render();
  try {
    const answer = await ask(`token?${new URLSearchParams({ room: callName, identity: caller })}`);
    if (!answer.ok) throw new Error(`the back end says ${answer.status}`);
    const { url, token, demo } = (await answer.json()) as {
      url: string; token: string; demo: boolean;
    };
    await next.connect(url, token);
    sessionStorage.setItem("in-call", callName);
    showDemo(demo);
  } catch (error) {
    failure = error instanceof Error ? error.message : "There was no answer.";
  }
  joining = false;
  render();
}

async function hangUp(): Promise<void> {
  if (hungUp) return;
  const agent = current();
  hungUp = true;
  sessionStorage.removeItem("in-call");
  render();
  if (room && agent?.present && !agent.end) {
    const bye = room.localParticipant.performRpc({
      destinationIdentity: agent.identity, method: "lifecycle.bye", payload: "",
    });
    // an agent that knows no such word notices that we leave; a dead one never answers
    await Promise.race([bye, sleep(BYE_TIMEOUT_MS)]).catch(() => undefined);
  }
  await room?.disconnect();
  render();
}

function leave(): void {
  watcher?.close();
  void room?.disconnect();
}

async function askAgain(): Promise<void> {
  const answer = await post("agent", { room: callName }).catch(() => undefined);
  asked = answer?.ok ?? false;
  aloneSince = undefined;
  render();
  if (!asked) write("advice", "The back end does not answer. Try again.");
}

function current(): Agent | undefined {
  const all = [...(watcher?.agents.values() ?? [])];
  return all.filter((one) => one.present).at(-1) ?? (asked ? undefined : all.at(-1));
}

function render(): void {
  const agent = current();
  asked &&= !agent;
  show(story(agent), agent ? facts(agent) : "");
  const connected = room?.state === ConnectionState.Connected;
  const over = !joining && (!room || room.state === ConnectionState.Disconnected);
  const focused = document.activeElement;
  const next = agent?.end?.exit?.next ?? "rejoin";
  const waits = !agent?.end || next === "wait";
  element("join").hidden = !over;
  element("join").textContent = room ? "Call again" : "Start a call";
  element("hangup").hidden = over;
  const alone = connected && !hungUp && !agent?.present;
  const longAlone = isLongAlone(alone);
  element("again").hidden = !alone || (waits && !longAlone);
  element("again").classList.toggle("main", next === "rejoin");
  element("room").textContent = `Call ${callName}, you are ${caller}`;
  showNotice(agent);
  showEarlier(agent);
  tick();
  // who works by keyboard must not be thrown back to the top of the page
  if (focused instanceof HTMLElement && focused.hidden) {
    document.querySelector<HTMLElement>(".actions button:not([hidden])")?.focus();
  }
}

function isLongAlone(alone: boolean): boolean {
  if (alone && aloneSince === undefined) {
    aloneSince = performance.now();
    setTimeout(render, PATIENCE_MS + 100);
  }
  if (!alone) aloneSince = undefined;
  return performance.now() - (aloneSince ?? Infinity) > PATIENCE_MS;
}

function story(agent: Agent | undefined): Words {
  if (!room) return words("plain", "○", "Not connected", "Nobody is on the line", "");
  if (joining) return words("busy", "…", "Connecting", "Connecting you", "A moment, please.");
  switch (room.state) {
    case ConnectionState.Reconnecting:
    case ConnectionState.SignalReconnecting:
      return words("busy", "↻", "Reconnecting", "Your connection is being restored",
        "What the agent does meanwhile can’t be seen from here.");
    case ConnectionState.Disconnected:
      if (hungUp) return words("done", "✓", "Over", "You hung up", "The call is over.");
      if (failure) {
        return words("bad", "✕", "Not connected", "The call did not start", failure, "Try again.");
      }
      return agent?.end?.exit ? endWords(agent.end)
        : words("bad", "✕", "Disconnected", "You were cut off", "Your connection is gone.");
    default:
      if (hungUp) return words("busy", "…", "Hanging up", "Hanging up", "");
      return agent ? agentWords(agent)
        : words("busy", "…", "Waiting for an agent", "An agent is on its way", "Please hold on.",
          isLongAlone(true) ? "It takes long: you can ask again." : "");
  }
}

function show({ tone, mark, label, headline, story, advice }: Words, factLine: string): void {
  card.dataset["tone"] = tone;
  write("mark", mark);
  write("label", label);
  write("headline", headline);
  write("story", story);
  write("advice", advice);
  write("facts", factLine);
}

function showNotice(agent: Agent | undefined): void {
  const draining = agent?.present && !agent.end && agent.drainedBy !== null;
  write("notice", draining ? "Its server is being updated: it goes on serving you until then." : "");
}

function showEarlier(agent: Agent | undefined): void {
  const earlier = [...(watcher?.agents.values() ?? [])].filter((one) => one !== agent && one.end);
  list("earlier", earlier.map((one) => {
    const { mark, label, story } = agentWords(one);
    return [`${mark} ${label}: ${story}`, facts(one)];
  }));
}

/** Counts down by the page's own monotonic clock: the wall clock may be wrong, or be set. */
function tick(): void {
  const agent = room?.state === ConnectionState.Connected ? current() : undefined;
  const alive = agent?.present && !agent.end;
  const waits = agent?.status.state === "waiting";
  const due = alive ? (agent.until ?? agent.drainedBy) : null;
  element("timer").hidden = due === null;
  if (!alive || due === null) return;
  write("seconds", seconds(due - performance.now()));
  write("until", agent.until === null ? "until it has to go"
    : waits ? "until it gives up" : "until its time is up");
}

function showDemo(demo: boolean): void {
  element("demo").hidden = element("heard").hidden = !demo;
  const grid = element("demo").querySelector(".grid");
  if (!demo || !grid || grid.childElementCount > 0) return;
  for (const [how, label] of Object.entries(ENDINGS)) {
    const button = document.createElement("button");
    button.type = "button";
    button.dataset["how"] = how;
    button.textContent = label;
    button.addEventListener("click", () => void cause(how, label));
    grid.append(button);
  }
  setInterval(() => void hear(), 1500);
  void hear();
}

async function cause(how: string, label: string): Promise<void> {
  const answer = await post("end", { room: callName, how }).catch(() => undefined);
  element("demo-answer").textContent = answer?.ok ? `${label}: done.` : `${label}: did not work.`;
}

async function hear(): Promise<void> {
  const answer = await ask(`exits?${new URLSearchParams({ room: callName })}`).catch(() => undefined);
  if (!answer?.ok) return;
  const heard = (await answer.json()) as Heard[];
  const rows = heard.map((one) => [
    [one.exit, one.reason, one.detail].filter(Boolean).join(" · "), one.identity,
  ]);
  list("heard", rows.length > 0 ? rows : [["No agent of this call has ended yet."]]);
}

function list(id: string, rows: string[][]): void {
  const ol = element(id).querySelector("ol");
  const wanted = JSON.stringify(rows);
  if (!ol || ol.dataset["rows"] === wanted) return;
  ol.dataset["rows"] = wanted;
  ol.replaceChildren(...rows.map(([first = "", second = ""]) => {
    const row = document.createElement("li");
    const small = document.createElement("span");
    small.className = "quiet";
    small.textContent = second;
    row.append(first, small);
    return row;
  }));
  if (id === "earlier") element(id).hidden = rows.length === 0;
}

function write(id: string, text: string): void {
  const target = element(id);
  // a screen reader says everything that is written anew, changed or not
  if (target.textContent !== text) target.textContent = text;
  if (["notice", "facts", "story", "advice"].includes(id)) target.hidden = text === "";
}

function element(id: string): HTMLElement {
  const found = document.getElementById(id);
  if (!found) throw new Error(`the page has no #${id}`);
  return found;
}

function keep(name: string, make: () => string): string {
  const value = query.get(name) ?? sessionStorage.getItem(name) ?? make();
  sessionStorage.setItem(name, value);
  return value;
}

function randomName(): string {
  return crypto.randomUUID().slice(0, 6);
}

function sleep(ms: number): Promise<void> {
  return new Promise((resolve) => setTimeout(resolve, ms));
}

element("join").addEventListener("click", () => void join());
element("again").addEventListener("click", () => void askAgain());
element("hangup").addEventListener("click", () => void hangUp());
setInterval(tick, 250);
render();
// a reload in the middle of a call goes on with it
if (sessionStorage.getItem("in-call") === callName) void join();

/** For tests and the console: the page's room. */
Object.assign(window, { demo: { room: () => room, agents: () => watcher?.agents } });
