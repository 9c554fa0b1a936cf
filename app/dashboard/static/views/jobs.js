// The recordings of the project, and one of them.
import { clock, html, lengthInWords, when } from "../lib.js";
import { Problem, Wide, usePages } from "../parts.js";
import Result from "./result.js";

const STATES = ["", "accepted", "processing", "completed"];

export default function Jobs({ rest, query }) {
  return rest[0] ? html`<${Result} key=${rest[0]} job=${rest[0]} query=${query} />` : html`<${List} state=${STATES.find((state) => state === query.get("state")) ?? ""} />`;
}

function List({ state }) {
  const { rows, value, error, loading, again, more, refresh } = usePages(`/api/v1/jobs?count=50${state ? `&state=${state}` : ""}`, "jobs");
  return html`
    <p class="filters"><label>State <select value=${state} onChange=${(event) => { location.hash = event.target.value ? `#/jobs?state=${event.target.value}` : "#/jobs"; }}>
      ${STATES.map((one) => html`<option value=${one}>${one || "all"}</option>`)}</select></label>
      <button class="quiet" onClick=${refresh}>Refresh</button></p>
    <${Problem} error=${error} again=${again} />
    ${rows.length
      ? html`<${Wide}><table><thead><tr><th>File</th><th>State</th><th>Length</th><th>Sent</th></tr></thead><tbody>
          ${rows.map((job) => html`<tr key=${job.job_id}><td class="name"><a href=${`#/jobs/${job.job_id}`}>${job.filename || "a recording"}</a></td>
            <td>${job.status}</td><td>${job.seconds == null ? "" : html`<span title=${lengthInWords(job.seconds)}>${clock(job.seconds)}</span>`}</td><td>${when(job.created_at)}</td></tr>`)}
        </tbody></table><//>`
      : loading ? html`<p class="empty" role="status">Loading…</p>` : error ? null : html`<p class="empty">No recordings yet. <a href="#/try">Send one</a></p>`}
    ${value?.missing ? html`<p class="problem">${value.missing.partitions} of ${value.missing.of} partitions do not answer now, so some recordings may be missing.</p>` : null}
    ${more ? html`<button onClick=${more} disabled=${loading}>More</button>` : null}`;
}
