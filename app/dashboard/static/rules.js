// Rules of alarms: what each looks for, how often it was wrong, and what it would have made.
import { html, tagName, useState } from "./lib.js";
import { request } from "./api.js";
import { labelsOf } from "./heard.js";
import { Problem, Sure, some } from "./parts.js";
import { EMPTY, RuleForm, Trial, bodyOf } from "./rule-form.js";

/** Alarms of a rule among which false ones are counted. */
const LAST = 50;

function percent(probability) {
  return `${Number((100 * probability).toFixed(2))} %`;
}

/** A rule in a sentence. */
export function sentence(rule) {
  const tags = rule.tags.map(tagName).join(", ");
  const loud = rule.level === null ? "" : ` from ${rule.level} dBFS`;
  const what = { heard: `${tags}, from ${percent(rule.probability)}${loud}`, absent: `No ${tags}`, loud: `Louder than ${rule.level} dBFS`, source: `Source ${rule.events.map((one) => one.replace("source.", "")).join(", ")}` }[rule.when];
  const labels = labelsOf(rule.labels);
  const where = rule.source ? ` on ${rule.source}` : "";
  const during = rule.during ? `, ${rule.during.begins} to ${rule.during.ends} (${rule.during.zone})` : "";
  return `${what}${rule.duration ? `, for ${rule.duration} s` : ""}${where}${labels && `, ${labels}`}${during}${rule.first_of_day ? ", first of the day" : ""}.`;
}

export function Rules({ loaded, alarms, destinations, sources }) {
  const [editing, edit] = useState(null);
  const rules = loaded.value?.rules ?? [];
  const done = () => {
    edit(null);
    loaded.again();
  };
  const shared = { destinations, sources, onDone: done, onCancel: () => edit(null) };
  return html`<section><h2>Rules</h2>
    ${rules.map((one) => editing === one.id
      ? html`<${RuleForm} key=${one.id} rule=${one} ...${shared} />`
      : html`<${Rule} key=${one.id} rule=${one} alarms=${alarms} destinations=${destinations} onEdit=${() => edit(one.id)} onChange=${loaded.again} />`)}
    ${rules.length || loaded.error ? null : html`<p class="empty" role="status">${loaded.loading ? "Loading…" : "No rules yet. A rule says what makes an alarm, and where it is sent."}</p>`}
    ${editing === "" ? html`<${RuleForm} rule=${EMPTY} ...${shared} />` : html`<p><button class="main" onClick=${() => edit("")}>Add a rule</button></p>`}
  </section>`;
}

function Rule({ rule, alarms, destinations, onEdit, onChange }) {
  const [error, setError] = useState(null);
  const [sure, setSure] = useState(false);
  const [trying, setTrying] = useState(0);
  const act = async (method, /** @type {any} */ body = undefined) => {
    setError(null);
    setSure(false);
    try {
      await request(method, `/api/v1/alarm_rules/${rule.id}`, { body });
    } catch (problem) {
      setError(problem);
    }
    onChange();
  };
  const change = (fields) => act("PUT", { ...bodyOf(rule), ...fields });
  const to = destinations.filter((one) => rule.destinations.includes(one.id)).map((one) => one.name);
  return html`<div class="card"><h3>${rule.name} <span class="hint">${rule.enabled ? "on" : "off"}</span></h3>
    <p>${sentence(rule)} ${to.length ? `Sent to ${to.join(", ")}.` : "Sent nowhere."}</p>
    <${Mistakes} rule=${rule} alarms=${alarms} onUse=${(probability) => change({ probability })} />
    <${Problem} error=${error} />
    <p class="actions"><button onClick=${onEdit} aria-label=${`Change ${rule.name}`}>Change</button>
      <button onClick=${() => setTrying((count) => count + 1)} aria-label=${`Test ${rule.name} on what was heard yesterday`}>Test it on yesterday</button>
      <button onClick=${() => change({ enabled: !rule.enabled })} aria-label=${`${rule.enabled ? "Switch off" : "Switch on"} ${rule.name}`}>${rule.enabled ? "Switch off" : "Switch on"}</button>
      <button class="danger" onClick=${() => setSure(true)} aria-label=${`Delete ${rule.name}`}>Delete…</button></p>
    ${trying ? html`<${Trial} key=${trying} rule=${bodyOf(rule)} />` : null}
    ${sure ? html`<${Sure} question=${`Delete the rule ${rule.name}?`} action="Delete" onYes=${() => act("DELETE")} onNo=${() => setSure(false)}><p>Its alarms stay.</p><//>` : null}
  </div>`;
}

const surest = (alarm) => Math.max(...alarm.tags.map((tag) => tag.probability));

/** The probability from which none of the false alarms would have come, and how many right ones would be lost; null if there is none. */
export function better(alarms) {
  const wrong = alarms.filter((one) => one.false && one.tags.length).map(surest);
  if (!wrong.length) return null;
  const above = (steps) => Math.floor(steps * Math.max(...wrong) + 1) / steps;
  const probability = above(100) < 1 ? above(100) : above(10_000);
  if (probability >= 1) return null;
  return { probability, lost: alarms.filter((one) => !one.false && one.tags.length && surest(one) < probability).length };
}

function Mistakes({ rule, alarms, onUse }) {
  const last = alarms.filter((one) => one.rule_id === rule.id).slice(0, LAST);
  const wrong = last.filter((one) => one.false).length;
  if (!last.length) return null;
  const hint = rule.when === "heard" && wrong ? better(last) : null;
  return html`<p>Marked as false: ${wrong} of ${some(last.length, "alarm")}.
    ${hint && hint.probability > rule.probability
      ? html` From ${percent(hint.probability)} on, none of the false ones would have come, and ${hint.lost} of ${last.length - wrong} others would be lost.
          <button class="quiet" onClick=${() => onUse(hint.probability)}>Use ${percent(hint.probability)}</button>`
      : null}</p>`;
}
