// The recordings of the project, and one of them.
import { clock, html, lengthInWords, useEffect, useState, when } from "../lib.js";
import { get } from "../api.js";
import { Problem, useLoaded } from "../parts.js";
import Result from "./result.js";

const STATES = ["", "accepted", "processing", "completed"];

export default function Jobs({ rest, query }) {
  return rest[0] ? html`<${Result} key=${rest[0]} job=${rest[0]} query=${query} />` : html`<${List} state=${STATES.find((state) => state === query.get("state")) ?? ""} />`;
}

function List({ state }) {
  const [pages, setPages] = useState([]);
  const [token, setToken] = useState("");
  const { value, error, loading, again } = useLoaded(
    (signal) => get(`/api/v1/jobs?count=50${state ? `&state=${state}` : ""}${token ? `&next_token=${encodeURIComponent(token)}` : ""}`, { signal }),
    [state, token],
  );
  useEffect(() => { setPages([]); setToken(""); }, [state]);
  useEffect(() => { if (value) setPages((before) => (token ? [...before, ...value.jobs] : value.jobs)); }, [value]);
  return html`
    <p class="filters"><label>State <select value=${state} onChange=${(event) => { location.hash = event.target.value ? `#/jobs?state=${event.target.value}` : "#/jobs"; }}>
      ${STATES.map((one) => html`<option value=${one}>${one || "all"}</option>`)}</select></label>
      <button class="quiet" onClick=${() => { setToken(""); again(); }}>Refresh</button></p>
    <${Problem} error=${error} again=${again} />
    ${pages.length
      ? html`<div class="scroll" tabindex="0" role="group" aria-label="Table"><table><thead><tr><th>File</th><th>State</th><th>Length</th><th>Sent</th></tr></thead><tbody>
          ${pages.map((job) => html`<tr key=${job.job_id}><td class="name"><a href=${`#/jobs/${job.job_id}`}>${job.filename || "a recording"}</a></td>
            <td>${job.status}</td><td>${job.seconds == null ? "" : html`<span title=${lengthInWords(job.seconds)}>${clock(job.seconds)}</span>`}</td><td>${when(job.created_at)}</td></tr>`)}
        </tbody></table></div>`
      : loading ? html`<p class="empty" role="status">Loading…</p>` : error ? null : html`<p class="empty">No recordings yet. <a href="#/try">Send one</a></p>`}
    ${value?.missing ? html`<p class="problem">${value.missing.partitions} of ${value.missing.of} partitions do not answer now, so some recordings may be missing.</p>` : null}
    ${value?.next_token ? html`<button onClick=${() => setToken(value.next_token)} disabled=${loading}>More</button>` : null}`;
}
