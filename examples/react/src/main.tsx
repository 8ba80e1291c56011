import {
  RoomAudioRenderer, SessionProvider, useAgent, useSession, useSessionContext,
} from "@livekit/components-react";
import { TokenSource } from "livekit-client";
import { createRoot } from "react-dom/client";
import { useAgentState, useLifecycle } from "./lifecycle";

const query = new URLSearchParams(location.search);
const name = (kind: string): string => query.get(kind) ?? `${kind}-${crypto.randomUUID().slice(0, 6)}`;
const call = new URLSearchParams({ room: name("room"), identity: name("caller") });

const tokens = TokenSource.custom(async () => {
  const { url, token } = await (await fetch(`/api/token?${call}`)).json();
  return { serverUrl: url, participantToken: token };
});

function App() {
  const session = useSession(tokens);
  // this page shows states only, so it asks for no microphone
  const start = () => session.start({ tracks: { microphone: { enabled: false } } });
  Object.assign(window, { room: session.room }); // for tests and the console
  return (
    <SessionProvider session={session}>
      <button onClick={() => void start()}>Start</button>
      <button onClick={() => void session.end()}>End</button>
      <States />
      <RoomAudioRenderer />
    </SessionProvider>
  );
}

function States() {
  const { room } = useSessionContext();
  const exit = useLifecycle(room)?.end?.exit;
  return (
    <dl>
      <dt>useAgent</dt>
      <dd id="plain">{useAgent().state}</dd>
      <dt>useAgentState</dt>
      <dd id="told">{useAgentState()}</dd>
      <dt>why</dt>
      <dd id="why">{exit ? `${exit.reason} ${exit.detail}` : ""}</dd>
    </dl>
  );
}

const root = document.getElementById("root");
if (root) createRoot(root).render(<App />);
