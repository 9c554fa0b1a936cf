// Sessions of the project as they are heard, one of them, and the microphone of this tab.
import { clock, html, hue, tagName, useEffect, useMemo, useRef, useState, when } from "../lib.js";
import { get, request } from "../api.js";
import { HeardNow, Level } from "../heard.js";
import { HeatMap, today } from "../heat-map.js";
import { Listening, useHeard, useSession } from "../listening.js";
import { base64, decibels, NO_MICROPHONE, openMicrophone, RATE } from "../microphone.js";
import { Problem, useLoaded, useWhileSeen } from "../parts.js";
import { NoMicrophone } from "../recording.js";

/** Windows of before that a session begins with: two minutes. */
const BEFORE = 240;
/** Sessions that the first screen shows at a time. */
const CARDS = 120;
/** Milliseconds without a window after which a session is silent. */
const SILENT = 30_000;

export default function Live({ rest, query }) {
  const asked = query.get("day") ?? "";
  const day = Number.isNaN(Date.parse(asked)) || !/^\d{4}-\d\d-\d\d$/.test(asked) ? today() : asked;
  const goTo = (next) => history.replaceState(null, "", `#/live${rest[0] ? `/${rest[0]}` : ""}${next === today() ? "" : `?day=${next}`}`) ?? dispatchEvent(new HashChangeEvent("hashchange"));
  if (rest[0] === "microphone") return html`<${Microphone} day=${day} onDay=${goTo} />`;
  return rest[0] ? html`<${Session} key=${rest[0]} id=${rest[0]} day=${day} onDay=${goTo} />` : html`<${Overview} day=${day} onDay=${goTo} />`;
}

const CLOCK = new Intl.DateTimeFormat(undefined, { timeStyle: "short" });

/** All that is heard now, what ended lately, and the day. */
function Overview({ day, onDay }) {
  const listening = useMemo(() => new Listening(), []);
  useEffect(() => {
    const stop = new AbortController();
    listening.run(stop.signal);
    return () => stop.abort();
  }, []);
  return html`<p>${NO_MICROPHONE ? html`<${NoMicrophone} />` : html`<a class="button" href="#/live/microphone">Open the microphone</a>`}</p>
    <${HearingNow} listening=${listening} />
    <${Day} listening=${listening} day=${day} onDay=${onDay} />
    <${Ended} />`;
}

/** The day, asked for again when the first sound is reported. */
function Day({ listening, day, onDay }) {
  useHeard(listening);
  const sounds = Number(listening.reported > 0);
  return useMemo(() => html`<${HeatMap} path="/api/v1/activity" day=${day} onDay=${onDay} sounds=${sounds} />`, [day, sounds]);
}

function HearingNow({ listening }) {
  useHeard(listening);
  const { sessions, status, error, missing } = listening;
  const [now, setNow] = useState(Date.now());
  useWhileSeen(() => setNow(Date.now()), SILENT / 6000);
  // Newest first, as they were met, then those from which nothing comes; what has ended stays until the page is left.
  const quiet = (id) => Number(silentSince(sessions.get(id), now) !== null);
  const ids = [...sessions.keys()].reverse().sort((one, other) => quiet(one) - quiet(other));
  return html`<section><h2>Hearing now</h2>
    <${Problem} error=${error} />
    ${status === "broken" && !error ? html`<p class="problem" role="status">The connection is broken. Trying again…</p>` : null}
    ${missing ? html`<p class="problem">${missing.partitions} of ${missing.of} partitions do not answer now, so some sessions may not be heard.</p>` : null}
    ${ids.length
      ? html`<ul class="cards">${ids.slice(0, CARDS).map((id) => html`<${Card} key=${id} listening=${listening} id=${id} now=${now} />`)}</ul>
          ${ids.length > CARDS ? html`<p class="hint">And ${ids.length - CARDS} more.</p>` : null}`
      : error ? null : html`<p class="empty" role="status">${status === "loading" ? "Loading…" : "Nothing is streaming now."}</p>`}
    <p class="hint" id="counted">${listening.windows} windows came since this page was opened, with ${listening.reported} reports of sounds.</p>
  </section>`;
}

/** Milliseconds since 1970 of the last window of an open session from which nothing comes, else null. */
function silentSince(heard, time) {
  return !heard.ended && time - heard.at > SILENT ? heard.at : null;
}

function Card({ listening, id, now: time }) {
  const heard = useHeard(listening, id);
  if (!heard) return null;
  const { session, now, ended } = heard;
  const silent = silentSince(heard, time);
  const level = now?.level?.rms;
  const top = (now?.top ?? []).filter((tag) => tag.probability >= 0.1).slice(0, 3);
  return html`<li class=${`card session ${silent === null ? "" : "stale"}`}>
    <p class="title"><a href=${`#/live/${id}`}>${session.file_name || id}</a> <span class="hint">${ended ? "ended" : silent === null ? session.state : `Silent since ${CLOCK.format(silent)}`}</span></p>
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
          ${pages.map((one) => html`<tr key=${one.session_id}><td class="name"><a href=${`#/live/${one.session_id}`}>${one.file_name || one.session_id}</a></td><td>${one.type}</td><td>${one.error ? "error" : one.state}</td>
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
      <${HeatMap} path=${`/audio_sessions/${id}/activity`} day=${day} onDay=${onDay} sounds=${heard.events.open.size} />`}`;
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
  const left = useRef(false);
  useEffect(() => () => {
    left.current = true;
    stop.current?.();
  }, []);
  const begin = async () => {
    setError(null);
    let made;
    let sequence;
    let sending;
    let waiting = 0;
    const fail = (problem) => { setError(problem); stop.current?.(); };
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
    let microphone;
    try {
      microphone = await openMicrophone((block, rms) => {
        setLevel(decibels(rms));
        if (waiting > 240) fail(new Error("The service has not taken the last two minutes of sound."));
        else send(block);
      });
    } catch (problem) {
      setError(problem);
      return;
    }
    if (left.current) {
      microphone.close();
      return;
    }
    // Only now: without a microphone there would be a session that nothing is sent to.
    sending = request("POST", "/audio_sessions/", { body: { type: "stream", content_type: `audio/x-raw; rate=${RATE}; format=s16le` } })
      .then((answer) => answer.json())
      .then((opened) => {
        made = opened;
        sequence = made.chunk_sequence;
        setSession(made.session_id);
      });
    sending.catch(fail);
    stop.current = () => {
      stop.current = null;
      microphone.close();
      setOpen(false);
      const rest = microphone.flush();
      if (rest.length) send(rest);
      sending.then(() => request("PATCH", `/audio_sessions/${made.session_id}`, { body: { make_readonly: true } })).catch(() => {});
    };
    setOpen(true);
  };
  return html`<p class="title"><a href="#/live">All sessions</a> <strong>Microphone</strong> <span class="hint">${session ? heard.session?.state : ""}</span></p>
    <${Problem} error=${error ?? readError} />
    <div class="card">
      ${open
        ? html`<${Level} label="Microphone" value=${level} /><button onClick=${() => stop.current?.()}>Stop</button>`
        : html`<p>What the microphone hears is sent to this service, and to nobody else.</p><${NoMicrophone} /><button class="main" disabled=${NO_MICROPHONE} onClick=${begin}>${session ? "Listen again" : "Listen"}</button>`}
    </div>
    ${session
      ? html`<${State} heard=${heard} status=${status} /><${HeardNow} key=${session} heard=${heard} status=${status} />
          <${HeatMap} path=${`/audio_sessions/${session}/activity`} day=${day} onDay=${onDay} sounds=${heard.events.open.size} />`
      : null}`;
}
