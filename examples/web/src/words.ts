/** What a person is told about an agent. No LiveKit, no DOM. */
import type { Agent, AgentEnd } from "./reader";

export type Tone = "plain" | "good" | "busy" | "done" | "bad" | "unsure";
export interface Words {
  tone: Tone; mark: string; label: string; headline: string; story: string; advice: string;
}

const REASONS: Record<string, string> = {
  completed: "It had done what it was there for.",
  close_on_disconnect: "The person it was talking to left.",
  timeout: "A time limit ran out.",
  drain: "Its server is being updated.",
  handoff: "It handed the conversation on.",
  replaced: "Another agent took its place.",
  removed: "An operator ended it.",
  room_closed: "The room was closed.",
  server_shutdown: "The call server is shutting down.",
  exception: "It ran into an error it did not expect.",
  session_error: "A service it depends on failed for good.",
  killed: "Its process was killed.",
  exited: "Its process stopped without a word.",
  worker_lost: "The machine it ran on stopped.",
  connection_lost: "It lost its connection and did not come back.",
  unknown: "It left without a goodbye.",
};

const DETAILS: Record<string, string> = {
  user_bye: "You hung up.",
  user_left: "The person it was talking to left.",
  user_rejected: "The call was declined.",
  user_removed: "The person it was talking to was removed.",
  grace: "It waited for its user, who did not come back in time.",
  max_duration: "The longest time for a call was up.",
  idle: "Nothing had happened for a long time.",
  no_show: "Nobody came.",
  llm: "Its language model failed for good.",
  stt: "Its speech recognition failed for good.",
  tts: "Its voice failed for good.",
  empty: "The room was empty for too long.",
};

const ADVICE: Record<string, string> = {
  end: "There is nothing you need to do.",
  wait: "Stay on the line: the next agent is on its way.",
  rejoin: "You can ask for a new agent and go on.",
};

/** Where "said goodbye" would not be the word. */
const HEADLINES: Record<string, string> = {
  replaced: "Another agent takes over",
  removed: "The agent was removed",
  room_closed: "The call was closed",
  server_shutdown: "The call server is closing",
};

/** Reasons whose detail is the app's own text, fit to be shown. */
const OWN_TEXT = ["completed", "handoff"];

export function endWords(end: AgentEnd): Words {
  const { exit, outcome } = end;
  if (outcome === "unclear") {
    return words("unsure", "?", "Not clear", "The agent is gone", "Your own connection broke " +
      "at that moment, so this page can’t know why.", ADVICE.rejoin);
  }
  if (!exit) {
    return words("unsure", "?", "Left", "The agent has left", "It does not say how it ends.",
      ADVICE.rejoin);
  }
  const story = DETAILS[exit.detail] ?? REASONS[exit.reason] ??
    (outcome === "crash" ? "Something went wrong on its side." : "It meant to.");
  const own = OWN_TEXT.includes(exit.reason) && exit.detail ? `It said: “${exit.detail}”` : story;
  const advice = ADVICE[exit.next] ?? ADVICE.end;
  return outcome === "crash"
    ? words("bad", "✕", "Crashed", "The agent was cut off", story, advice)
    : words("done", "✓", "Ended on purpose", HEADLINES[exit.reason] ?? "The agent said goodbye",
        own, advice);
}

export function agentWords(agent: Agent): Words {
  const { status, end, present } = agent;
  if (end) {
    const said = endWords(end);
    // it still says its last words: a new agent would talk into them
    return present && end.exit?.next === "rejoin" ? { ...said, advice: "" } : said;
  }
  if (!present) {
    return words("unsure", "…", "Out of sight", "Looking for the agent",
      "It has just left the room, without a goodbye. It may be reconnecting.");
  }
  if (!status.managed) {
    return words("good", "●", "Here", "An agent is here", "It does not say what it is doing.");
  }
  if (status.stalledMs !== null) {
    return words("bad", "!", "Not responding", "The agent does not respond",
      "It is still connected, but nobody is answering.", "Give it a moment.");
  }
  switch (status.state) {
    case "starting":
      return words("busy", "…", "Starting", "The agent is getting ready", "A moment, please.");
    case "waiting":
      return words("busy", "◔", "Waiting", "The agent is holding the line",
        "The person it talks to has lost the connection or is reloading the page.");
    case "closing":
      return words("busy", "…", "Closing", "The agent is finishing", "");
    case "closed":
      return words("done", "■", "Finished", "The agent has finished", "It serves nobody any more.");
    default:
      return words("good", "●", "With you", "The agent is with you", "Go ahead, it is listening.");
  }
}

export function words(
  tone: Tone, mark: string, label: string, headline: string, story: string, advice = "",
): Words {
  return { tone, mark, label, headline, story, advice };
}

/** The contract's own words, for whoever has to look into it. */
export function facts(agent: Agent): string {
  const exit = agent.end?.exit;
  const own = exit ? OWN_TEXT.includes(exit.reason) : false;
  const said = exit ? [exit.exit, exit.reason, own ? "" : exit.detail, `next: ${exit.next}`] : [];
  return [agent.identity, ...said].filter(Boolean).join(" · ");
}

export function seconds(ms: number): string {
  const all = Math.max(0, Math.ceil(ms / 1000));
  const rest = all % 60;
  return all < 60 ? `${all} s` : `${Math.floor(all / 60)}:${String(rest).padStart(2, "0")}`;
}
