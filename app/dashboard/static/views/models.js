// The models in use: what they know, and what that rests on.
import { html, tagName, useState } from "../lib.js";
import { get } from "../api.js";
import { Dot, Problem, Table, useLoaded } from "../parts.js";

const KINDS = { "sound-events": "sounds", "speaker-embedding": "voices", "speech-recognition": "words" };
const STEPS = [-2, -1, 0, 1, 2];

const percent = (share) => (share === null ? "–" : `${Math.round(100 * share)} %`);

export default function Models() {
  const { value, error, loading, again } = useLoaded((signal) => get("/api/v1/models", { signal }), []);
  if (!value) return error ? html`<${Problem} error=${error} again=${again} />` : loading ? html`<p class="empty" role="status">Loading…</p>` : null;
  const sounds = value.models.find((model) => model.kind === "sound-events");
  return html`<section class="card"><h2>In use</h2>
      <${Table} label="Models" head=${["Model", "Hears", "Licence", "Takes", "Knows", "Weights"]}>
        ${value.models.map((model) => html`<tr key=${model.id}><th scope="row"><code>${model.id}</code></th><td>${KINDS[model.kind]}</td><td>${model.licence}</td>
          <td>${model.sample_rate / 1000} kHz${model.window_seconds === null ? "" : `, windows of ${model.window_seconds} s every ${model.hop_seconds} s`}</td>
          <td>${model.classes === null ? "" : `${model.classes} classes, as ${model.tags.length} sounds`}</td><td><code title=${model.sha256}>${model.sha256.slice(0, 8)}…</code></td></tr>`)}<//></section>
    ${sounds ? html`<${Sensitivity} tags=${sounds.tags} step=${value.sensitivity_logits} /><${Tags} model=${sounds} />` : null}`;
}

/** The score from which a tag is reported at a sensitivity. */
function moved(point, sensitivity, step) {
  const logit = Math.log(point / (1 - point)) + sensitivity * step;
  return 1 / (1 + Math.exp(-logit));
}

function Sensitivity({ tags, step }) {
  const [name, setName] = useState(tags.some((tag) => tag.name === "Dog_bark") ? "Dog_bark" : tags[0].name);
  const [score, setScore] = useState(0.5);
  const tag = tags.find((one) => one.name === name);
  return html`<section class="card"><h2>Sensitivity</h2>
    <p>A model gives each sound a score. The sound is reported when the score reaches the sound's own operating point, which is shown as 50 %. Sensitivity moves that point: -2 reports most, 2 least.</p>
    <p class="filters"><label>Sound <select value=${name} onChange=${(event) => setName(event.target.value)}>${tags.map((one) => html`<option value=${one.name}>${tagName(one.name)}</option>`)}</select></label>
      <label class="line">A score of <input type="range" min="0.01" max="0.99" step="0.01" value=${score} aria-valuetext=${score.toFixed(2)} onInput=${(event) => setScore(Number(event.target.value))} /> ${score.toFixed(2)}</label></p>
    <${Table} label="Sensitivity" head=${["Sensitivity", "Reported from", "That score"]}>
      ${STEPS.map((one) => {
        const point = moved(tag.point, one, step);
        const shown = moved(score, -one - Math.log(tag.point / (1 - tag.point)) / step, step);
        return html`<tr class=${one ? "" : "now"}><th scope="row">${one > 0 ? `+${one}` : one}</th><td>${point.toFixed(3)}</td><td>${score >= point ? html`<strong>reported</strong>` : "not reported"} <span class="hint">as ${percent(shown)}</span></td></tr>`;
      })}<//></section>`;
}

function Tags({ model }) {
  const [search, setSearch] = useState("");
  const shown = model.tags.filter((tag) => `${tagName(tag.name)} ${tag.category}`.toLowerCase().includes(search.toLowerCase()));
  return html`<section class="card"><h2>Sounds and their operating points</h2>
    ${model.how_measured ? html`<p>Measured on ${model.how_measured}</p>` : html`<p>This model is not measured: its sounds have no figures.</p>`}
    <ul class="hint"><li><strong>Found</strong>: of the recordings with the sound, those in which it was reported.</li><li><strong>Right</strong>: of the recordings in which it was reported, those that have it. It depends on how rare the sound is among them.</li><li><strong>Average precision</strong>: how well scores tell recordings with the sound from others, whatever the point.</li></ul>
    <label>Find <input type="search" value=${search} onInput=${(event) => setSearch(event.target.value)} /></label>
    <p class="hint" role="status">${shown.length} of ${model.tags.length} sounds.</p>
    ${shown.length
      ? html`<${Table} label="Sounds" head=${["Sound", "Reported from", "Found", "Right", "Average precision", "Its point rests on"]}>
          ${shown.map((tag) => html`<tr key=${tag.name}><th scope="row"><${Dot} name=${tag.name} /><small>${tag.category}</small></th><td>${tag.point.toFixed(3)}</td>${figures(tag.figures, model.recordings)}
            <td>${tag.clips ? `${tag.clips} recordings of it` : "other sounds alone"}</td></tr>`)}<//>`
      : html`<p class="empty">No sound of this model matches.</p>`}</section>`;
}

function figures(one, recordings) {
  if (!one) return html`<td colspan="3">no figures for this sound</td>`;
  if (!one.clips) return html`<td colspan="3">no recording of it; reported in ${one.reported} of ${recordings} of other sounds${one.right ? `, ${one.right} where it may be heard` : ""}</td>`;
  return html`<td>${percent(one.recall)}<small>${one.found} of ${one.clips}</small></td><td>${percent(one.precision)}<small>${one.right} of ${one.reported}</small></td>
    <td>${one.average_precision === null ? "–" : one.average_precision.toFixed(2)}${one.learnt ? html`<small>learnt from these</small>` : null}</td>`;
}
