// Sessions of the project, one of them as it is heard, and the microphone of this tab.
import { clock, html, hue, tagName, useEffect, useRef, useState, when } from "../lib.js";
import { get, request } from "../api.js";
import { joined } from "../events.js";
import { base64, decibels, openMicrophone, RATE } from "../microphone.js";
import { Problem, useLoaded } from "../parts.js";

export default function Live({ rest }) {
  if (rest[0] === "microphone") return html`<${Microphone} />`;
  return rest[0] ? html`<${Session} key=${rest[0]} id=${rest[0]} />` : html`<${List} />`;
}

function List() {
  const { value, error, loading, again } = useLoaded((signal) => get("/audio_sessions/?count=50", { signal }), []);
  return html`
    <p><a class="button" href="#/live/microphone">Open the microphone</a> <button class="quiet" onClick=${again}>Refresh</button></p>
    <${Problem} error=${error} again=${again} />
    ${value?.sessions?.length
      ? html`<div class="scroll" tabindex="0" role="group" aria-label="Table"><table><thead><tr><th>Session</th><th>Kind</th><th>State</th><th>Length</th><th>Opened</th></tr></thead><tbody>
          ${value.sessions.map((one) => html`<tr><td><a href=${`#/live/${one.session_id}`}>${one.file_name || one.session_id}</a></td><td>${one.type}</td><td>${one.state}</td>
            <td>${one.seconds == null ? "" : clock(one.seconds)}</td><td>${when(one.created_at ?? one.updated_at)}</td></tr>`)}
        </tbody></table></div>`
      : loading ? html`<p class="empty" role="status">Loading…</p>` : error ? null : html`<p class="empty">Nothing is streaming, and nothing was lately.</p>`}`;
}

/** Windows of a session as they come, from `begin` on: read by waiting, so nothing is asked in vain. */
function useWindows(id, begin = null) {
  const [state, setState] = useState({ windows: [], status: null });
  useEffect(() => {
    if (!id) return undefined;
    const stop = new AbortController();
    (async () => {
      let query = begin === null ? "count=1" : `offset=${begin}&count=256`;
      let skipping = begin === null;
      for (let failures = 0; !stop.signal.aborted; ) {
        try {
          const status = await get(`/audio_sessions/${id}/status?${query}`, { signal: stop.signal, as: null });
          failures = 0;
          const page = status.inference.page;
          if (skipping) {
            // Of a long session the last minutes are enough to begin with.
            skipping = false;
            query = `offset=${Math.max(0, (page?.total ?? 0) - 240)}&count=256`;
            continue;
          }
          const fresh = status.inference.results ?? [];
          setState((before) => ({ status, windows: [...before.windows, ...fresh].slice(-2000) }));
          if (!page?.next_token) return;
          query = `next_token=${encodeURIComponent(page.next_token)}`;
        } catch (error) {
          if (stop.signal.aborted) return;
          if (error.status && error.status < 500) throw error;
          failures += 1;
          await new Promise((resolve) => setTimeout(resolve, Math.min(10_000, 300 * 2 ** failures)));
        }
      }
    })().catch((error) => stop.signal.aborted || setState((before) => ({ ...before, error })));
    return () => stop.abort();
  }, [id]);
  return state;
}

function Session({ id }) {
  const { windows, status, error } = useWindows(id);
  return html`<p class="title"><a href="#/live">All sessions</a> <strong>${id}</strong> ${status ? html`<span class="hint">${status.state}</span>` : null}</p>
    <${Problem} error=${error} />
    ${status?.error ? html`<p class="problem">${status.error}</p>` : null}
    <${Heard} windows=${windows} waiting=${!status && !error} />`;
}

/** What is heard now, and what was heard before that. */
function Heard({ windows, waiting }) {
  const now = windows.at(-1);
  const tags = (now?.tags ?? []).filter((tag) => tag.name !== "Others").slice(0, 5);
  const events = joined(
    windows.map((window) => ({
      start: window.start_time,
      end: window.end_time,
      tags: window.tags.filter((tag) => tag.name !== "Others").map((tag) => [tag.name, tag.probability]),
    })),
  ).slice(-100).reverse();
  return html`<section class="card"><h2>Now</h2>
      ${now ? html`<p class="hint">${clock(now.start_time, 1)} to ${clock(now.end_time, 1)}</p>` : null}
      ${tags.length
        ? tags.map((tag) => html`<label class="level"><span><span class=${`dot ${hue(tag.name)}`}></span>${tagName(tag.name)}</span><meter min="0" max="1" value=${tag.probability}></meter><span>${Math.round(100 * tag.probability)} %</span></label>`)
        : html`<p class="empty">${waiting ? "Loading…" : "Nothing that the model knows."}</p>`}
    </section>
    <section><h2>Before</h2>
      ${events.length
        ? html`<div class="scroll" tabindex="0" role="group" aria-label="Table"><table><thead><tr><th>From</th><th>To</th><th>Sound</th><th>Surest</th></tr></thead><tbody>
            ${events.map((one) => html`<tr><td>${clock(one.start, 1)}</td><td>${clock(one.end, 1)}</td><td><span class=${`dot ${hue(one.tag)}`}></span>${tagName(one.tag)}</td><td>${Math.round(100 * one.confidence)} %</td></tr>`)}
          </tbody></table></div>`
        : html`<p class="empty">No events yet.</p>`}
    </section>`;
}

/** Streams the microphone of this tab into a session of its own. */
function Microphone() {
  const [session, setSession] = useState(null);
  const [level, setLevel] = useState(-100);
  const [error, setError] = useState(null);
  const [open, setOpen] = useState(false);
  const stop = useRef(null);
  const { windows, status, error: readError } = useWindows(session, 0);
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
          const repeat = { as: null, body: { data: base64(block) }, more: { "Idempotency-Key": `${made.session_id}-${sequence}` } };
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
        sending.then(() => request("PATCH", `/audio_sessions/${made.session_id}`, { as: null, body: { make_readonly: true } })).catch(() => {});
      };
      setSession(made.session_id);
      setOpen(true);
    } catch (problem) {
      setError(problem.status ? problem : new Error(`The microphone cannot be used: ${problem.message}`));
    }
  };
  return html`<p class="title"><a href="#/live">All sessions</a> <strong>Microphone</strong> ${status ? html`<span class="hint">${status.state}</span>` : null}</p>
    <${Problem} error=${error ?? readError} />
    <div class="card">
      ${open
        ? html`<label class="level"><span>Level</span><meter min="-60" max="0" low="-50" value=${level}></meter><span>${level.toFixed(0)} dBFS</span></label><button onClick=${() => stop.current?.()}>Stop</button>`
        : html`<p>What the microphone hears is sent to this service, and to nobody else.</p><button class="main" onClick=${begin}>${session ? "Listen again" : "Listen"}</button>`}
    </div>
    ${session ? html`<${Heard} windows=${windows} waiting=${!status} />` : null}`;
}
