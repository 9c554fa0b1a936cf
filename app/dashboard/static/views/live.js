// Sessions of the project as they are heard, one of them, and the microphone of this tab.
import { clock, html, hue, tagName, useEffect, useMemo, useRef, useState, when } from "../lib.js";
import { get, request } from "../api.js";
import { HeardNow, Level } from "../heard.js";
import { HeatMap, today } from "../heat-map.js";
import { Listening, useHeard, useSession } from "../listening.js";
import { base64, decibels, openMicrophone, RATE } from "../microphone.js";
import { Problem, useLoaded } from "../parts.js";

/** Windows of before that a session begins with: two minutes. */
const BEFORE = 240;
/** Sessions that the first screen shows at a time. */
const CARDS = 120;

export default function Live({ rest, query }) {
  const day = query.get("day") || today();
  const goTo = (next) => history.replaceState(null, "", `#/live${rest[0] ? `/${rest[0]}` : ""}${next === today() ? "" : `?day=${next}`}`) ?? dispatchEvent(new HashChangeEvent("hashchange"));
  if (rest[0] === "microphone") return html`<${Microphone} day=${day} onDay=${goTo} />`;
  return rest[0] ? html`<${Session} key=${rest[0]} id=${rest[0]} day=${day} onDay=${goTo} />` : html`<${Overview} day=${day} onDay=${goTo} />`;
}

/** All that is heard now, what ended lately, and the day. */
function Overview({ day, onDay }) {
  const listening = useMemo(() => new Listening(), []);
  useEffect(() => {
    const stop = new AbortController();
    listening.run(stop.signal);
    return () => stop.abort();
  }, []);
  return html`<p><a class="button" href="#/live/microphone">Open the microphone</a></p>
    <${HearingNow} listening=${listening} />
    <${HeatMap} path="/api/v1/activity" day=${day} onDay=${onDay} />
    <${Ended} />`;
}

function HearingNow({ listening }) {
  useHeard(listening);
  const { sessions, status, error, missing } = listening;
  // Newest first, as they were met; what has ended stays until the page is left.
  const ids = [...sessions.keys()].reverse();
  return html`<section><h2>Hearing now</h2>
    <${Problem} error=${error} />
    ${status === "broken" && !error ? html`<p class="problem" role="status">The connection is broken. Trying again…</p>` : null}
    ${missing ? html`<p class="problem">${missing.partitions} of ${missing.of} partitions do not answer now, so some sessions may not be heard.</p>` : null}
    ${ids.length
      ? html`<ul class="cards">${ids.slice(0, CARDS).map((id) => html`<${Card} key=${id} listening=${listening} id=${id} />`)}</ul>
          ${ids.length > CARDS ? html`<p class="hint">And ${ids.length - CARDS} more.</p>` : null}`
      : error ? null : html`<p class="empty" role="status">${status === "loading" ? "Loading…" : "Nothing is streaming now."}</p>`}
    <p class="hint" id="counted">${listening.windows} windows came since this page was opened, with ${listening.reported} reports of sounds.</p>
  </section>`;
}

function Card({ listening, id }) {
  const heard = useHeard(listening, id);
  if (!heard) return null;
  const { session, now, ended } = heard;
  const level = now?.level?.rms;
  const top = (now?.top ?? []).filter((tag) => tag.probability >= 0.1).slice(0, 3);
  return html`<li class="card session">
    <p class="title"><a href=${`#/live/${id}`}>${session.file_name || id}</a> <span class="hint">${ended ? "ended" : session.state}</span></p>
    <label class="line"><meter min="-60" max="0" low="-50" value=${Math.max(-60, level ?? -60)}></meter><span class="number">${level === undefined ? "–" : `${level.toFixed(0)} dBFS`}</span></label>
    ${session.error ? html`<p class="hint">${session.error}</p>` : null}
    <ul class="plain">${top.map((tag) => html`<li key=${tag.name} class=${tag.probability < 0.5 ? "faint" : ""}><span class=${`dot ${hue(tag.name)}`}></span>${tagName(tag.name)} ${Math.round(100 * tag.probability)} %</li>`)}
      ${top.length ? null : html`<li class="hint">${now ? "Nothing that the model knows." : "No sound yet."}</li>`}</ul>
    ${heard.missed ? html`<p class="hint">${heard.missed} windows of a break are not counted here.</p>` : null}
  </li>`;
}

/** Sessions that take no more sound, page by page. */
function Ended() {
  const [pages, setPages] = useState([]);
  const [token, setToken] = useState("");
  const { value, error, loading, again } = useLoaded((signal) => get(`/audio_sessions/?state=readonly&count=20${token ? `&next_token=${encodeURIComponent(token)}` : ""}`, { signal }), [token]);
  useEffect(() => { if (value) setPages((before) => (token ? [...before, ...value.sessions] : value.sessions)); }, [value]);
  return html`<section><h2>Ended</h2>
    <${Problem} error=${error} again=${again} />
    ${value?.missing ? html`<p class="problem">${value.missing.partitions} of ${value.missing.of} partitions do not answer now, so some sessions may be missing.</p>` : null}
    ${pages.length
      ? html`<div class="scroll" tabindex="0" role="group" aria-label="Table"><table><thead><tr><th>Session</th><th>Kind</th><th>State</th><th>Length</th><th>Opened</th></tr></thead><tbody>
          ${pages.map((one) => html`<tr key=${one.session_id}><td><a href=${`#/live/${one.session_id}`}>${one.file_name || one.session_id}</a></td><td>${one.type}</td><td>${one.error ? "error" : one.state}</td>
            <td>${clock(one.seconds)}</td><td>${when(one.created_at ?? one.updated_at)}</td></tr>`)}
        </tbody></table></div>`
      : loading ? html`<p class="empty" role="status">Loading…</p>` : error ? null : html`<p class="empty">Nothing has ended lately.</p>`}
    <p class="actions">${value?.next_token ? html`<button onClick=${() => setToken(value.next_token)} disabled=${loading}>More</button>` : null}
      <button class="quiet" onClick=${() => { setToken(""); again(); }}>Refresh</button></p>
  </section>`;
}

function Session({ id, day, onDay }) {
  const { heard, status, error } = useSession(id, -BEFORE);
  return html`<p class="title"><a href="#/live">All sessions</a> <strong>${heard.session?.file_name ?? id}</strong> <span class="hint">${heard.session?.state ?? ""}</span></p>
    <${Problem} error=${error?.status === 404 ? new Error("There is no such session here: it was deleted, has expired, or never was.") : error} />
    ${error ? null : html`<${State} heard=${heard} status=${status} /><${HeardNow} heard=${heard} status=${status} />
      <${HeatMap} path=${`/audio_sessions/${id}/activity`} day=${day} onDay=${onDay} />`}`;
}

/** What else is to be said of a session: that it broke, moved, ended. */
function State({ heard, status }) {
  if (status === "broken") return html`<p class="problem" role="status">The connection is broken. Trying again; nothing is lost.</p>`;
  if (heard.ended?.how === "deleted") return html`<p class="problem" role="status">The session was deleted.</p>`;
  if (heard.session?.error) return html`<p class="problem">${heard.session.error}</p>`;
  return heard.ended ? html`<p class="hint" role="status">The session has ended, after ${heard.ended.windows} windows.</p>` : null;
}

/** Streams the microphone of this tab into a session of its own. */
function Microphone({ day, onDay }) {
  const [session, setSession] = useState(null);
  const [level, setLevel] = useState(-100);
  const [error, setError] = useState(null);
  const [open, setOpen] = useState(false);
  const stop = useRef(null);
  const { heard, status, error: readError } = useSession(session, 0);
  useEffect(() => () => stop.current?.(), []);
  const begin = async () => {
    setError(null);
    try {
      const made = await (await request("POST", "/audio_sessions/", { body: { type: "stream", content_type: `audio/x-raw; rate=${RATE}; format=s16le` } })).json();
      let sequence = made.chunk_sequence;
      let sending = Promise.resolve();
      let waiting = 0;
      const send = (block) => {
        waiting += 1;
        sending = sending.then(async () => {
          const path = `/audio_sessions/${made.session_id}/chunks/${sequence}`;
          const repeat = { body: { data: base64(block) }, more: { "Idempotency-Key": `${made.session_id}-${sequence}` } };
          for (;;) {
            try {
              sequence = (await (await request("PUT", path, repeat)).json()).chunk_sequence;
              break;
            } catch (problem) {
              // What was not taken is sent again under the same key, so that nothing is heard twice.
              if (problem.status && problem.status !== 503) throw problem;
              await new Promise((resolve) => setTimeout(resolve, 1000 * (problem.retryAfter || 1)));
            }
          }
          waiting -= 1;
        }).catch(fail);
      };
      const fail = (problem) => { setError(problem); stop.current?.(); };
      const microphone = await openMicrophone((block, rms) => {
        setLevel(decibels(rms));
        if (waiting > 240) fail(new Error("The service has not taken the last two minutes of sound."));
        else send(block);
      });
      stop.current = () => {
        stop.current = null;
        microphone.close();
        setOpen(false);
        const rest = microphone.flush();
        if (rest.length) send(rest);
        sending.then(() => request("PATCH", `/audio_sessions/${made.session_id}`, { body: { make_readonly: true } })).catch(() => {});
      };
      setSession(made.session_id);
      setOpen(true);
    } catch (problem) {
      setError(problem.status ? problem : new Error(`The microphone cannot be used: ${problem.message}`));
    }
  };
  return html`<p class="title"><a href="#/live">All sessions</a> <strong>Microphone</strong> <span class="hint">${session ? heard.session?.state : ""}</span></p>
    <${Problem} error=${error ?? readError} />
    <div class="card">
      ${open
        ? html`<${Level} label="Microphone" value=${level} /><button onClick=${() => stop.current?.()}>Stop</button>`
        : html`<p>What the microphone hears is sent to this service, and to nobody else.</p><button class="main" onClick=${begin}>${session ? "Listen again" : "Listen"}</button>`}
    </div>
    ${session
      ? html`<${State} heard=${heard} status=${status} /><${HeardNow} key=${session} heard=${heard} status=${status} />
          <${HeatMap} path=${`/audio_sessions/${session}/activity`} day=${day} onDay=${onDay} />`
      : null}`;
}
