// The microphone of this tab as a session of its own.
import { html, useEffect, useRef, useState } from "./lib.js";
import { HeardNow, Level, NoSocket, SessionState, stateOf } from "./heard.js";
import { HeatMap, growth } from "./heat-map.js";
import { paced, useSession } from "./listening.js";
import { LiveSocket } from "./live-socket.js";
import { BLOCK, NO_MICROPHONE, RATE, decibels, openMicrophone, takeAsked } from "./microphone.js";
import { Problem, State, useTitle } from "./parts.js";
import { NoMicrophone } from "./recording.js";

/** Seconds of sound that wait here while the service is away. */
const LONGEST_WAIT = 600;
const TOO_LONG = "The service took none of the last ten minutes of sound, so the microphone was closed. The page sends it once the service answers.";
/** Seconds that analysis may be late before the page says so. */
const LATE = 5;

/** Streams the microphone of this tab into a session of its own. */
export function Microphone({ day, onDay }) {
  const [socket, setSocket] = useState(/** @type {LiveSocket | null} */ (null));
  const [level, setLevel] = useState(-100);
  const [error, setError] = useState(null);
  const [open, setOpen] = useState(false);
  const [, redraw] = useState(0);
  const stop = useRef(null);
  const left = useRef(false);
  const opening = useRef(false);
  const id = socket?.session;
  const { heard, status, error: readError } = useSession(id, 0, socket);
  const name = heard.session?.file_name ?? "Microphone";
  useTitle(name);
  useEffect(() => () => {
    left.current = true;
    stop.current?.();
  }, []);
  useEffect(() => { if (takeAsked()) begin(); }, []);
  const begin = async () => {
    if (opening.current) return; // A second click while the browser asks for the microphone.
    opening.current = true;
    setError(null);
    let live = /** @type {any} */ (null);
    let microphone;
    try {
      microphone = await openMicrophone((block, rms) => {
        setLevel(decibels(rms));
        live.send(block);
        if (waiting(live) < LONGEST_WAIT) return;
        setError(new Error(TOO_LONG));
        stop.current?.();
      });
    } catch (problem) {
      setError(problem);
      return;
    } finally {
      opening.current = false;
    }
    if (left.current) {
      microphone.close();
      return;
    }
    // Only now: without a microphone there would be a session that nothing is sent to.
    const fields = { content_type: `audio/x-raw; rate=${RATE}; format=s16le`, file_name: (microphone.name || "Microphone").slice(0, 200) };
    live = new LiveSocket({ fields }, paced(() => redraw((count) => count + 1)));
    let ended = false;
    const end = () => {
      if (ended) return;
      ended = true;
      microphone.close();
      setOpen(false);
      const rest = microphone.flush();
      if (rest.length) live.send(rest);
      live.end();
    };
    // The tab is closed, loaded anew, or kept for "Back": then its session has ended too.
    const leave = () => {
      end();
      live.leave();
    };
    addEventListener("pagehide", leave);
    stop.current = end;
    setSocket(live);
    setOpen(true);
    live.run().then(() => {
      removeEventListener("pagehide", leave);
      end();
    });
  };
  return html`<p class="title"><a href="#/live">All sessions</a> <strong>${name}</strong>
      <span class="hint">${id ? stateOf(heard, socket.error ?? readError) : ""}</span></p>
    <${Problem} error=${error ?? socket?.error ?? readError} />
    <div class="card">
      <${Sending} socket=${socket} />
      ${open
        ? html`<${Level} label="Microphone" value=${level} /><button onClick=${() => stop.current?.()}>Stop</button>`
        : html`<p>What the microphone hears is sent to this service, and to nobody else.</p><${NoMicrophone} />
            <button class="main" disabled=${NO_MICROPHONE} onClick=${begin}>${socket ? "Listen again" : "Listen"}</button>`}
    </div>
    ${id
      ? html`${socket.status === "cut" ? null : html`<${SessionState} heard=${heard} status=${status} />`}
          <${HeardNow} key=${id} heard=${heard} status=${status} />
          <${HeatMap} path=${`/audio_sessions/${id}/activity`} day=${day} onDay=${onDay} heard=${growth(heard.names.size, heard.windows)} />`
      : null}`;
}

/** Seconds of sound that the service has not acknowledged. */
function waiting(socket) {
  return (socket.waiting * BLOCK) / RATE;
}

/** How the microphone's sound reaches the service, or why not. */
function Sending({ socket }) {
  if (!socket || socket.status === "over" || socket.status === "refused") return null;
  const late = socket.behind > LATE ? html`<p class="hint">Analysis is ${Math.round(socket.behind)} s late.</p>` : null;
  if (socket.status === "live") return html`<p role="status"><${State} state="good">Live<//></p>${late}`;
  if (socket.status === "connecting") return html`<p role="status"><${State} state="old">Connecting…<//></p>`;
  return html`${socket.status === "cut"
      ? html`<p role="status"><${State} state="slow">Cut: trying again<//></p>`
      : html`<${NoSocket} socket=${socket} />`}
    <p class="hint">Nothing is lost: ${Math.round(waiting(socket))} s of sound wait here.</p>`;
}
