/** Beside `useAgent` of LiveKit's React components: what its `failed` was. */
import { type AgentState, useAgent, useSessionContext } from "@livekit/components-react";
import type { Room } from "livekit-client";
import { useEffect, useState } from "react";
import { type Agent, AgentWatcher } from "./reader";

/** The agent that is here, else the last one that was. */
export function useLifecycle(room: Room): Agent | undefined {
  const [agent, setAgent] = useState<Agent>();
  useEffect(() => {
    const watcher = new AgentWatcher(room, (_, all) =>
      setAgent(all.filter((one) => one.present).at(-1) ?? all.at(-1)),
    );
    return () => {
      watcher.close();
      setAgent(undefined);
    };
  }, [room]);
  return agent;
}

/** `useAgent`'s state, with its `failed` told apart. */
export function useAgentState(): AgentState | "ended" | "crashed" | "unclear" | "lost" {
  const { room } = useSessionContext();
  const { state } = useAgent();
  const agent = useLifecycle(room);
  if (!agent?.status.managed) return state;
  if (agent.end?.outcome === "intentional") return "ended";
  if (agent.end?.outcome === "crash") return "crashed";
  if (state === "disconnected") return state; // the page has left, so it is not the agent that failed
  if (agent.end) return "unclear";
  // it may be reconnecting, or we are: `failed` would be too early
  if (!agent.present) return "lost";
  if (state !== "failed") return state;
  // `useAgent` stays with it, also when the agent is back or the next one is here
  const { attributes } = room.remoteParticipants.get(agent.identity) ?? {};
  return (attributes?.["lk.agent.state"] as AgentState | undefined) ?? "initializing";
}
