// Sounds that the project teaches: their marks, how well they are learnt, what they would have found, and whether they are on.
import { clock, html, tagName, useEffect, useState, when } from "../lib.js";
import { get, request } from "../api.js";
import { Problem, Sure, Table, some, useLoaded } from "../parts.js";
import { Verdict, counted } from "../teaching.js";

const DAY = 86_400_000;
/** Recordings, and sessions, of the last day that are looked at. */
const MOST = 100;
/** Passages with the sound from which it can be learnt. */
const FEWEST = 10;

export default function Own() {
  const sounds = useLoaded((signal) => get("/api/v1/own_sounds", { signal }), []);
  const project = useLoaded((signal) => get("/api/v1/project", { signal }), []);
  const list = sounds.value?.sounds ?? [];
  return html`<p>Teach the model a new sound with ten passages or more. Open a <a href="#/jobs">recording</a> or a <a href="#/live">live session</a>, unfold “Teach a sound of your own”, and mark where the sound is. Then come back.</p>
    <${Problem} error=${sounds.error ?? project.error} again=${sounds.again} />
    ${project.value ? html`<${Keeping} project=${project.value} onChange=${project.again} />` : null}
    ${list.map((one) => html`<${Sound} key=${one.name} sound=${one} onChange=${sounds.again} />`)}
    ${list.length ? null : sounds.loading ? html`<p class="empty" role="status">Loading…</p>` : sounds.error ? null : html`<p class="empty">No own sounds yet.</p>`}`;
}

function Keeping({ project, onChange }) {
  const [error, setError] = useState(null);
  const change = async (event) => {
    setError(null);
    try {
      await request("PATCH", "/api/v1/project", { body: { keep_embeddings: event.target.checked } });
    } catch (problem) {
      setError(problem);
    }
    onChange();
  };
  return html`<p><label><input type="checkbox" checked=${project.keep_embeddings} onChange=${change} /> Keep learning data with new recordings and sessions</label></p>
    <p class="hint">That is 192 numbers for each two or five seconds with sound. Audio cannot be rebuilt from them. They are deleted with the recording, except those of passages that you mark.</p>
    <${Problem} error=${error} />`;
}

function Sound({ sound, onChange }) {
  const [busy, setBusy] = useState(false);
  const [error, setError] = useState(null);
  const [sure, setSure] = useState(false);
  const [looking, setLooking] = useState(0);
  const path = `/api/v1/own_sounds/${encodeURIComponent(sound.name)}`;
  const act = async (method, tail, /** @type {any} */ body = undefined) => {
    setBusy(true);
    setError(null);
    setSure(false);
    try {
      await request(method, path + tail, { body });
    } catch (problem) {
      setError(problem);
    }
    setBusy(false);
    onChange();
  };
  const right = sound.marks.filter((one) => one.right).length;
  return html`<section class="card"><h2>${tagName(sound.name)} <span class="hint">${sound.on ? "on" : sound.learnt_at ? "learnt" : "not learnt yet"}</span></h2>
    <p>${counted(sound)}${right < FEWEST ? `${FEWEST - right} more ${FEWEST - right === 1 ? "is" : "are"} needed.` : ""}</p>
    ${sound.fits ? null : html`<p class="problem">The model has changed. Mark the sound in new recordings, and learn it again.</p>`}
    ${Object.entries(sound.figures).map(
      ([kind, one]) => html`<p key=${kind}>In ${kind}: ${Math.round(100 * one.found)} % of the passages are found, each learning only from the others. ${one.false_per_minute.toFixed(2)} false reports a minute in recordings of many other sounds.${one.left_out.length ? ` The model cannot tell it from: ${one.left_out.map(tagName).join(", ")}.` : ""}</p>`,
    )}
    <${Problem} error=${error} />
    <p class="actions"><button disabled=${busy || right < FEWEST} onClick=${() => act("POST", "/learn")}>${busy ? "Wait…" : sound.learnt_at ? "Learn again" : "Learn"}</button>
      <button disabled=${!sound.learnt_at} onClick=${() => setLooking((count) => count + 1)}>What it would have found since yesterday</button>
      <button disabled=${busy || !sound.learnt_at} onClick=${() => act("PATCH", "", { on: !sound.on })}>${sound.on ? "Switch off" : "Switch on"}</button>
      <button class="danger" onClick=${() => setSure(true)}>Delete…</button></p>
    ${looking ? html`<${Yesterday} key=${looking} name=${sound.name} path=${path} />` : null}
    <details><summary>Marks</summary><${Table} label="Marks" head=${["Where", "From", "To", "What", "More"]}>
      ${sound.marks.map((one) => html`<tr key=${one.id}><td class="name"><${Where} job=${one.job_id} session=${one.session_id} at=${one.start} /></td>
        <td>${clock(one.start, 1)}</td><td>${clock(one.end, 1)}</td><td>${one.right ? "the sound" : "another"}</td>
        <td><button class="quiet" onClick=${() => act("DELETE", `/marks/${one.id}`)}>Forget</button></td></tr>`)}<//></details>
    ${sure ? html`<${Sure} question=${`Delete ${tagName(sound.name)}?`} action="Delete" onYes=${() => act("DELETE", "")} onNo=${() => setSure(false)}><p>Its marks and what was learnt from them are deleted. Earlier reports stay.</p><//>` : null}
  </section>`;
}

/** A link to a place of a recording or session. */
function Where({ job, session, at, name = "" }) {
  return job ? html`<a href=${`#/jobs/${job}?t=${at.toFixed(1)}`}>${name || job}</a>` : html`<a href=${`#/live/${session}`}>${name || session}</a>`;
}

/** All that was sent since yesterday, as {job, session, name, from}. */
async function sources(signal) {
  const since = new Date(Date.now() - DAY);
  const query = `since=${encodeURIComponent(since.toISOString())}&count=${MOST}`;
  const [jobs, fresh, open] = await Promise.all([
    get(`/api/v1/jobs?${query}`, { signal }),
    get(`/audio_sessions/?${query}`, { signal }),
    get(`/audio_sessions/?state=writable&count=${MOST}`, { signal }),
  ]);
  const sessions = new Map([...fresh.sessions, ...open.sessions].map((one) => [one.session_id, one]));
  return [
    ...jobs.jobs.map((one) => ({ job: one.job_id, name: one.filename, from: 0 })),
    ...[...sessions.values()].map((one) => ({ session: one.session_id, name: one.file_name, from: Math.max(0, Math.floor((since.getTime() - Date.parse(one.created_at ?? "")) / 1000) || 0) })),
  ];
}

function Yesterday({ name, path }) {
  const [state, set] = useState({ found: [], done: 0, all: null, without: 0, seconds: 0 });
  const [error, setError] = useState(null);
  useEffect(() => {
    const stop = new AbortController();
    (async () => {
      const all = await sources(stop.signal);
      set((before) => ({ ...before, all: all.length }));
      for (const one of all) {
        const place = one.job ? `jobs/${one.job}` : `sessions/${one.session}`;
        try {
          const said = await get(`${path}/${place}?from=${one.from}`, { signal: stop.signal });
          const rows = said.found.map((passage) => ({ ...one, ...passage, place }));
          set((before) => ({ ...before, done: before.done + 1, seconds: before.seconds + said.seconds, found: [...before.found, ...rows] }));
        } catch (problem) {
          // Nothing to learn from was kept of it, or it is gone.
          if (problem.status !== 404 && problem.status !== 409) throw problem;
          set((before) => ({ ...before, done: before.done + 1, without: before.without + 1 }));
        }
      }
    })().catch((problem) => stop.signal.aborted || setError(problem));
    return () => stop.abort();
  }, []);
  const { found, done, all, without, seconds } = state;
  return html`<${Problem} error=${error} />
    <p role="status">${all === null ? "Looking…" : `${done} of ${all} recordings and sessions since ${when(new Date(Date.now() - DAY).toISOString())}: ${some(found.length, "report")} in ${clock(seconds)} of audio.`}${without ? ` ${without} have no data.` : ""}</p>
    ${found.length
      ? html`<${Table} label="Reports" head=${["Where", "From", "To", "Surest", "Is it?"]}>
          ${found.map((one) => html`<tr key=${`${one.place} ${one.start}`}><td class="name"><${Where} job=${one.job} session=${one.session} at=${one.start} name=${one.name} /></td>
            <td>${clock(one.start, 1)}</td><td>${clock(one.end, 1)}</td><td>${Math.round(100 * one.probability)} %</td>
            <td><${Verdict} name=${name} source=${one.place} start=${one.start} end=${one.end} /></td></tr>`)}<//>`
      : null}`;
}
