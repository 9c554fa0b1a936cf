// Sessions of the project as they are heard, one of them, and the microphone of this tab.
import { clock, html, useEffect, useMemo, when } from "../lib.js";
import { HeardNow, OnSince, SessionState, When, labelsOf, opened, saidFault, saidSilent, silentSince, stateOf, useTime } from "../heard.js";
import { HeatMap, dayAgo, growth } from "../heat-map.js";
import { Listening, useHeard, useSession } from "../listening.js";
import { Microphone } from "../live-microphone.js";
import { NO_MICROPHONE, askToListen } from "../microphone.js";
import { Dot, Problem, State, Table, some, usePages, useTitle } from "../parts.js";
import { NoMicrophone } from "../recording.js";

/** Windows of before that a session begins with: two minutes. */
const BEFORE = 240;
/** Sessions that the first screen shows at a time. */
const CARDS = 120;

export default function Live({ rest, query }) {
  const asked = query.get("day") ?? "";
  const day = Number.isNaN(Date.parse(asked)) || !/^\d{4}-\d\d-\d\d$/.test(asked) ? dayAgo(0) : asked;
  const goTo = (next) => {
    history.replaceState(null, "", `#/live${rest[0] ? `/${rest[0]}` : ""}${next === dayAgo(0) ? "" : `?day=${next}`}`);
    dispatchEvent(new HashChangeEvent("hashchange"));
  };
  if (rest[0] === "microphone") return html`<${Microphone} day=${day} onDay=${goTo} />`;
  if (rest[0]) return html`<${Session} key=${rest[0]} id=${rest[0]} day=${day} onDay=${goTo} />`;
  return html`<${Overview} day=${day} onDay=${goTo} />`;
}

/** All that is heard now, what ended lately, and the day. */
function Overview({ day, onDay }) {
  const listening = useMemo(() => new Listening(), []);
  useEffect(() => {
    const stop = new AbortController();
    listening.run(stop.signal);
    return () => stop.abort();
  }, []);
  return html`<p>${NO_MICROPHONE ? html`<${NoMicrophone} />` : html`<a class="button" href="#/live/microphone" onClick=${askToListen}>Listen with the microphone</a>`}</p>
    <${HearingNow} listening=${listening} />
    <${LastSounds} listening=${listening} />
    <${Day} listening=${listening} day=${day} onDay=${onDay} />
    <${EndedLately} listening=${listening} />`;
}

/** The day, asked for again as sound comes. */
function Day({ listening, day, onDay }) {
  useHeard(listening);
  const heard = growth(Number(listening.reported > 0), listening.windows);
  return useMemo(() => html`<${HeatMap} path="/api/v1/activity" day=${day} onDay=${onDay} heard=${heard} />`, [day, heard]);
}

function HearingNow({ listening }) {
  useHeard(listening);
  const { sessions, status, error, missing } = listening;
  const now = useTime();
  // Newest first, as they were met, then those from which nothing comes; what has ended stays until the page is left.
  const quiet = (id) => Number(silentSince(sessions.get(id), now) !== null);
  const ids = [...sessions.keys()].reverse().sort((one, other) => quiet(one) - quiet(other));
  return html`<section><h2>Hearing now</h2>
    <${Problem} error=${error} />
    ${status === "broken" && !error ? html`<p class="problem" role="status">The connection is broken. Trying again…</p>` : null}
    <${Missing} missing=${missing} what="some sessions may not be heard" />
    ${ids.length
      ? html`<ul class="cards">${ids.slice(0, CARDS).map((id) => html`<${Card} key=${id} listening=${listening} id=${id} now=${now} />`)}</ul>
          ${ids.length > CARDS ? html`<p class="hint">And ${ids.length - CARDS} more.</p>` : null}`
      : error ? null : html`<p class="empty" role="status">${status === "loading" ? "Loading…" : "Nothing is streaming now."}</p>`}
    <p class="hint" id="counted">${some(listening.windows, "window")} came since this page was opened, with ${some(listening.reported, "report")} of sounds.</p>
  </section>`;
}

function Missing({ missing, what }) {
  if (!missing) return null;
  return html`<p class="problem">${missing.partitions} of ${missing.of} partitions do not answer now, so ${what}.</p>`;
}

/** Sounds of all sessions, where the stream of the project tells them. */
function LastSounds({ listening }) {
  useHeard(listening);
  const { sounds, sessions } = listening;
  const time = useTime();
  if (!sounds.length) return null;
  return html`<section><h2>Events</h2><${Table} label="Sounds" head=${["Sound", "When", "Session"]}>
    ${sounds.toReversed().map(({ id, sound }) => {
      const heard = sessions.get(id);
      const on = heard && !heard.ended && silentSince(heard, time) === null && heard.sounds.on.get(sound.name) === sound;
      return html`<tr key=${`${id} ${sound.name} ${sound.start}`}><td><${Dot} name=${sound.name} /></td>
        <td><${When} heard=${heard} sound=${sound} on=${on} /></td>
        <td class="name"><a href=${`#/live/${id}`}>${heard?.session.file_name || id}</a></td></tr>`;
    })}<//></section>`;
}

function Card({ listening, id, now: time }) {
  const heard = useHeard(listening, id);
  if (!heard) return null;
  const { session, now, ended } = heard;
  const silent = silentSince(heard, time);
  const level = now?.level?.rms;
  const on = ended || silent !== null ? [] : [...heard.sounds.on.values()].slice(-3);
  const top = (now?.top ?? []).filter((tag) => tag.probability >= 0.1 && !on.some((one) => one.name === tag.name)).slice(0, 3 - on.length);
  const state = ended ? ", ended" : silent === null ? "" : `. ${saidSilent(silent)}`;
  return html`<li class=${`card session ${silent === null ? "" : "stale"}`}>
    <p class="title"><a href=${`#/live/${id}`}>${session.file_name || id}</a> <span class="hint">${opened(session)}${state}</span></p>
    <label class="line"><meter min="-60" max="0" low="-50" value=${Math.max(-60, level ?? -60)}></meter>
      <span class="number">${level === undefined ? "–" : `${level.toFixed(0)} dBFS`}</span></label>
    ${session.metadata ? html`<p class="hint">${labelsOf(session.metadata)}</p>` : null}
    ${!ended && session.source ? html`<p><${State} state="bad">${saidFault(session)}<//></p>` : null}
    ${session.error ? html`<p class="hint">${session.error}</p>` : null}
    <ul class="plain">${silent !== null && now ? html`<li class="hint">Last heard</li>` : null}${on.map((one) => html`<li key=${one.name}><${OnSince} heard=${heard} sound=${one} /></li>`)}
      ${top.map(
        (tag) => html`<li key=${tag.name} class=${tag.probability < 0.5 ? "faint" : ""}>
          <${Dot} name=${tag.name} /> ${Math.round(100 * tag.probability)} %</li>`,
      )}
      ${top.length || on.length ? null : html`<li class="hint">${now ? "No sound that the model knows." : session.seconds ? "No sound since this page was opened." : "No sound yet."}</li>`}</ul>
    ${heard.missed ? html`<p class="hint">Not counted here: ${some(heard.missed, "window")} of a break.</p>` : null}
  </li>`;
}

/** Sessions that have ended, asked for again when one ends. */
function EndedLately({ listening }) {
  useHeard(listening);
  const ended = [...listening.sessions.values()].filter((one) => one.ended).length;
  return useMemo(() => html`<${Ended} ended=${ended} />`, [ended]);
}

/** Sessions that take no more sound, page by page; a reader who has turned to further pages keeps them. */
function Ended({ ended }) {
  const { rows, value, error, loading, again, more, refresh } = usePages("/audio_sessions/?state=readonly&count=20", "sessions");
  useEffect(() => { if (ended && rows.length <= 20) refresh(); }, [ended]);
  return html`<section><h2>Ended</h2>
    <${Problem} error=${error} again=${again} />
    <${Missing} missing=${value?.missing} what="some sessions may be missing" />
    ${rows.length
      ? html`<${Table} label="Ended sessions" head=${["Session", "Kind", "State", "Length", "Opened"]}>
          ${rows.map((one) => html`<tr key=${one.session_id}>
            <td class="name"><a href=${`#/live/${one.session_id}`}>${one.file_name || one.session_id}</a></td><td>${one.type}</td>
            <td>${one.error ? "error" : "ended"}</td><td>${clock(one.seconds)}</td><td>${when(one.created_at ?? one.updated_at)}</td></tr>`)}<//>`
      : loading ? html`<p class="empty" role="status">Loading…</p>` : error ? null : html`<p class="empty">Nothing has ended lately.</p>`}
    <p class="actions">${more ? html`<button onClick=${more} disabled=${loading}>More</button>` : null}
      <button class="quiet" onClick=${refresh}>Refresh</button></p>
  </section>`;
}

function Session({ id, day, onDay }) {
  const { heard, status, error, socket } = useSession(id, -BEFORE);
  const name = heard.session?.file_name;
  useTitle(name);
  const gone = new Error("There is no such session here: it was deleted, has expired, or never was.");
  return html`<p class="title"><a href="#/live">All sessions</a> <strong>${name ?? id}</strong>
      <span class="hint">${stateOf(heard, error)}</span></p>
    <${Problem} error=${error?.status === 404 ? gone : error} />
    ${error ? null : html`<${SessionState} heard=${heard} status=${status} /><${HeardNow} heard=${heard} status=${status} socket=${socket} />
      <${HeatMap} path=${`/audio_sessions/${id}/activity`} day=${day} onDay=${onDay} heard=${growth(heard.names.size, heard.windows)} />`}`;
}
