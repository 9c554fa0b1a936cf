// The form of a rule of alarms, and what the rule would have made of yesterday.
import { html, tagName, useEffect, useState } from "./lib.js";
import { get, request } from "./api.js";
import { Began, Source, What } from "./alarm-list.js";
import { dayAgo, dayQuery } from "./heat-map.js";
import { Problem, Table, some, useLoaded } from "./parts.js";

const ZONE = new Intl.DateTimeFormat().resolvedOptions().timeZone || "UTC";
const WHENS = { heard: "a sound is heard", absent: "a sound is not heard", loud: "it is loud", source: "something happens to the source" };
/** Fields that only some kinds of rules use. */
const USED = { heard: ["tags", "probability", "level", "duration", "gap"], absent: ["tags", "probability", "duration"], loud: ["level", "duration", "gap"], source: ["events"] };
const EVENTS = { "source.lost": "it is lost", "source.back": "it is back", "source.silent": "it sends silence" };
/** A rule as it begins. */
export const EMPTY = { id: "", name: "", when: "heard", tags: [], probability: 0.5, level: null, events: [], duration: 0, gap: 2, source: null, labels: {}, during: null, first_of_day: false, cooldown: 60, destinations: [], enabled: true };

/** A rule as requests have it. */
export function bodyOf(rule) {
  return Object.fromEntries(Object.entries(rule).filter(([name]) => name !== "id" && name !== "revision"));
}

export function RuleForm({ rule, destinations, sources, onDone, onCancel }) {
  const [now, set] = useState(rule);
  const [error, setError] = useState(null);
  const [trying, setTrying] = useState(null);
  const known = useLoaded(names, []);
  const change = (fields) => set((before) => ({ ...before, ...fields }));
  const uses = (field) => USED[now.when].includes(field);
  const unused = Object.values(USED).flat().filter((field) => !uses(field));
  const body = () => ({ ...bodyOf(now), ...Object.fromEntries(unused.map((field) => [field, EMPTY[field]])) });
  const save = async (event) => {
    event.preventDefault();
    setError(null);
    try {
      await request(rule.id ? "PUT" : "POST", `/api/v1/alarm_rules${rule.id ? `/${rule.id}` : ""}`, { body: body() });
      onDone();
    } catch (problem) {
      setError(problem);
    }
  };
  const listed = (field, name, label) => html`<label class="choice" key=${name}><input type="checkbox" checked=${now[field].includes(name)}
    onChange=${(event) => change({ [field]: event.target.checked ? [...now[field], name] : now[field].filter((one) => one !== name) })} /> ${label}</label>`;
  const streams = [...new Set([...sources.values()].map((one) => one.file_name).filter(Boolean))];
  return html`<form class="card" onSubmit=${save} aria-label=${rule.id ? `Change ${rule.name}` : "New rule"}>
    <p class="filters"><label>Name <input required maxlength="60" value=${now.name} placeholder="smoke alarm" onInput=${(event) => change({ name: event.target.value })} /></label>
      <label>Alarm if <select value=${now.when} onChange=${(event) => change({ when: event.target.value })}>${Object.entries(WHENS).map(([name, words]) => html`<option value=${name}>${words}</option>`)}</select></label></p>
    ${uses("tags") ? html`<${Tags} tags=${now.tags} known=${known.value ?? []} onChange=${(tags) => change({ tags })} />` : null}
    ${uses("events") ? html`<fieldset class="services"><legend>Alarm if</legend>${Object.entries(EVENTS).map(([name, words]) => listed("events", name, words))}</fieldset>` : null}
    <p class="filters">
      ${uses("probability") ? html`<${Amount} label="From, percent" value=${Number((100 * now.probability).toFixed(2))} min="1" max="99.99" step="any" onInput=${(value) => change({ probability: value / 100 })} />` : null}
      ${now.when === "loud" ? html`<${Amount} label="From, dBFS" value=${now.level ?? ""} min="-100" max="0" onInput=${(level) => change({ level })} />` : null}
      ${uses("duration") ? html`<${Amount} label="For, seconds" value=${now.duration} min="0" max="86400" step="any" onInput=${(duration) => change({ duration })} />` : null}
      <${Amount} label="Pause after an alarm, seconds" value=${now.cooldown} min="0" max="86400" step="any" onInput=${(cooldown) => change({ cooldown })} /></p>
    <p class="filters"><label>Source <input list="rule-sources" maxlength="200" value=${now.source ?? ""} placeholder="all" onInput=${(event) => change({ source: event.target.value || null })} /></label>
      <datalist id="rule-sources">${streams.map((name) => html`<option value=${name}></option>`)}</datalist>
      <${Pairs} label="Labels" example="floor=1, room=kitchen" pairs=${now.labels} onChange=${(labels) => change({ labels })} /></p>
    <${During} during=${now.during} onChange=${(during) => change({ during })} />
    <p class="filters"><label class="choice"><input type="checkbox" checked=${now.first_of_day} onChange=${(event) => change({ first_of_day: event.target.checked })} /> Only the first of a day</label></p>
    <fieldset class="services"><legend>Send it to</legend>${destinations.map((one) => listed("destinations", one.id, one.name))}
      ${destinations.length ? null : html`<p class="hint">There are no destinations yet: the alarm is only shown here.</p>`}</fieldset>
    <${Problem} error=${error} />
    <p class="actions"><button class="main">Save</button> <button type="button" onClick=${() => setTrying({ body: body(), number: (trying?.number ?? 0) + 1 })}>Test it on what was heard yesterday</button>
      <button type="button" onClick=${onCancel}>Cancel</button></p>
    ${trying ? html`<${Trial} key=${trying.number} rule=${{ ...trying.body, name: trying.body.name.trim() || "new" }} />` : null}
  </form>`;
}

/** Names that rules may have: tags, own sounds, classes. */
async function names(signal) {
  const [{ models }, own] = await Promise.all([get("/api/v1/models", { signal }), get("/api/v1/own_sounds", { signal })]);
  const tags = models[0].tags;
  return [...new Set([...own.sounds.map((one) => one.name), ...tags.map((one) => one.name), ...tags.map((one) => one.category)])];
}

function Amount({ label, value, onInput, ...bounds }) {
  return html`<label>${label} <input type="number" required value=${value} ...${bounds} onInput=${(event) => event.target.value !== "" && onInput(Number(event.target.value))} /></label>`;
}

/** The tags of a rule: search, add, remove. */
function Tags({ tags, known, onChange }) {
  const [text, setText] = useState("");
  const add = (typed) => {
    const name = known.find((one) => tagName(one).toLowerCase() === typed.trim().toLowerCase() || one === typed.trim());
    if (!name) return false;
    if (!tags.includes(name)) onChange([...tags, name]);
    setText("");
    return true;
  };
  useEffect(() => { add(text); }, [known.length]); // It may have been typed before the names came.
  let hint = "Type a part of its name, and choose one.";
  if (!known.length) hint = "Loading the names of sounds…";
  else if (text && !known.some((one) => tagName(one).toLowerCase().includes(text.trim().toLowerCase()))) hint = `The model knows no sound like “${text}”.`;
  return html`<fieldset><legend>Any of these sounds</legend>
    <ul class="chips">${tags.map((name) => html`<li key=${name}>${tagName(name)} <button type="button" class="quiet" aria-label=${`Remove ${tagName(name)}`} onClick=${() => onChange(tags.filter((one) => one !== name))}>✕</button></li>`)}</ul>
    <p class="filters"><label>Sound or class <input list="rule-tags" value=${text} placeholder="Fire smoke alarm" aria-describedby="rule-tags-hint"
        onInput=${(event) => add(event.target.value) || setText(event.target.value)} onKeyDown=${(event) => { if (event.key === "Enter") { event.preventDefault(); add(text); } }} /></label>
      <datalist id="rule-tags">${known.map((name) => html`<option value=${tagName(name)}></option>`)}</datalist></p>
    <p class="hint" id="rule-tags-hint" role="status">${hint}</p>
  </fieldset>`;
}

/** Texts by name, typed as name=value. */
export function Pairs({ label, example, pairs, onChange }) {
  const [text, setText] = useState(Object.entries(pairs).map((pair) => pair.join("=")).join(", "));
  const take = (event) => {
    setText(event.target.value);
    onChange(Object.fromEntries(event.target.value.split(",").map((one) => one.trim().split(/\s*=\s*(.*)/)).filter(([name, value]) => name && value)));
  };
  return html`<label>${label} <input value=${text} placeholder=${example} onInput=${take} /></label>`;
}

function During({ during, onChange }) {
  const part = (name, label) => html`<label>${label} <input type="time" required value=${during[name]} onInput=${(event) => event.target.value && onChange({ ...during, [name]: event.target.value })} /></label>`;
  return html`<p class="filters"><label class="choice"><input type="checkbox" checked=${during !== null} onChange=${(event) => onChange(event.target.checked ? { begins: "22:00", ends: "06:00", zone: ZONE } : null)} /> Only in a part of the day</label>
    ${during ? html`${part("begins", "From")} ${part("ends", "to")} <label>Zone <input required maxlength="64" value=${during.zone} onInput=${(event) => onChange({ ...during, zone: event.target.value })} /></label>` : null}</p>`;
}

/** What a rule would have made of the day before this one. */
export function Trial({ rule }) {
  const [state, set] = useState({});
  useEffect(() => {
    const stop = new AbortController();
    request("POST", `/api/v1/alarm_rules/test?${dayQuery(dayAgo(1))}`, { body: rule, signal: stop.signal })
      .then((answer) => answer.json())
      .then((value) => set({ value }), (error) => stop.signal.aborted || set({ error }));
    return () => stop.abort();
  }, []);
  const { value, error } = state;
  if (!value) return error ? html`<${Problem} error=${error} />` : html`<p role="status">Looking at what was heard yesterday…</p>`;
  const partly = value.left_out ? ` ${value.left_out} of them were not searched to their end: test it again on fewer sources.` : "";
  return html`<p role="status">It would have made ${some(value.total, "alarm")} yesterday, in ${some(value.sessions, "stream")}.${partly}</p>
    ${value.missing ? html`<p class="problem">${value.missing.partitions} of ${value.missing.of} partitions do not answer now, so some streams may be missing.</p>` : null}
    ${value.alarms.length
      ? html`<${Table} label="What it would have made" head=${["What", "Source", "When"]}>
          ${value.alarms.slice(0, 50).map((one) => html`<tr key=${`${one.session_id} ${one.start}`}><td><${What} found=${one} /></td><td class="name"><${Source} found=${one} /></td><td><${Began} found=${one} /></td></tr>`)}<//>`
      : null}`;
}
