// Teaching a sound of one's own: which one is taught in this tab, and marks of passages.
import { clock, html, tagName, useEffect, useState } from "./lib.js";
import { get, request } from "./api.js";
import { Problem, some } from "./parts.js";

const KEPT = "earshot.teaching";
/** Seconds of the longest passage. */
const LONGEST = 30;
const listeners = new Set();

/** A name as the service takes it, of what somebody typed. */
function nameOf(text) {
  const name = text.trim().replace(/[^A-Za-z0-9]+/g, "_").replace(/^_+|_+$/g, "");
  return name && name[0].toUpperCase() + name.slice(1);
}

/** The sound that is taught in this tab, "" for none, and a function that chooses another one. */
export function useTaught() {
  const [name, set] = useState(sessionStorage.getItem(KEPT) ?? "");
  useEffect(() => {
    listeners.add(set);
    return () => listeners.delete(set);
  }, []);
  return [name, choose];
}

function choose(name) {
  sessionStorage.setItem(KEPT, name);
  for (const listener of listeners) listener(name);
}

/** Mark a passage of `source`, such as `jobs/ID`; returns the sound. */
async function mark(name, source, start, end, right) {
  const body = { start: Number(start.toFixed(2)), end: Number(end.toFixed(2)), right };
  return (await request("POST", `/api/v1/own_sounds/${encodeURIComponent(name)}/${source}`, { body })).json();
}

/** How many marks a sound has, in words. */
export function counted({ marks }) {
  const right = marks.filter((one) => one.right).length;
  return `${some(right, "passage")} ${right === 1 ? "is" : "are"} marked as the sound, ${marks.length - right} as another. `;
}

/** Buttons that say of a report whether the taught sound is there. */
export function Verdict({ name, source, start, end }) {
  const [said, say] = useState("");
  const give = async (right) => {
    try {
      await mark(name, source, start, Math.min(end, start + LONGEST), right);
      say(right ? "marked" : "marked as another");
    } catch (problem) {
      say(problem.message);
    }
  };
  const what = `${tagName(name)} at ${clock(start, 1)}`;
  return html`<span class="verdict"><button class="quiet" title=${`This is ${tagName(name)}`} aria-label=${`This is ${what}`} onClick=${() => give(true)}>✓</button>
    <button class="quiet" title=${`This is not ${tagName(name)}`} aria-label=${`This is not ${what}`} onClick=${() => give(false)}>✗</button> <small aria-live="polite">${said}</small></span>`;
}

/** Chooses the sound that is taught; with `passage`, {start, end} in seconds, that one can be marked. */
export function Teaching({ source, passage = /** @type {{start: number, end: number} | null} */ (null) }) {
  const [name] = useTaught();
  const [text, setText] = useState(tagName(name));
  const [sounds, setSounds] = useState([]);
  const [said, say] = useState("");
  const [error, setError] = useState(null);
  const [bounds, setBounds] = useState(/** @type {{start?: number, end?: number}} */ ({}));
  useEffect(() => {
    get("/api/v1/own_sounds").then((value) => setSounds(value.sounds), () => {});
  }, []);
  const start = bounds.start ?? passage?.start ?? 0;
  const end = bounds.end ?? passage?.end ?? 0;
  const give = async (right) => {
    setError(null);
    try {
      say(counted(await mark(name, source, start, end, right)));
      setBounds({});
    } catch (problem) {
      setError(problem);
    }
  };
  const bound = (key, value, label) => html`<input type="number" aria-label=${label} min="0" step="0.1" value=${value.toFixed(1)} onInput=${(event) => setBounds((before) => ({ ...before, [key]: Number(event.target.value) }))} />`;
  return html`<details class="card" open=${Boolean(name)}><summary>Teach a sound of your own</summary>
    <p><label>Its name <input list="own-sounds" value=${text} placeholder="Espresso machine" onInput=${(event) => { setText(event.target.value); choose(nameOf(event.target.value)); }} /></label>
      <datalist id="own-sounds">${sounds.map((one) => html`<option value=${tagName(one.name)}></option>`)}</datalist></p>
    ${name && passage
      ? html`<p class="filters">From ${bound("start", start, "Passage from, seconds")} to ${bound("end", end, "Passage to, seconds")} s
          <button onClick=${() => give(true)}>This is it</button> <button onClick=${() => give(false)}>This is not it</button></p>`
      : null}
    <${Problem} error=${error} />
    <p class="hint" role="status">${said}${name
      ? html`Mark ten passages with the sound, from different takes, and sounds it is mistaken for. Learn it under <a href="#/own">Own sounds</a>. ✓ and ✗ in the tables do the same for a report.`
      : "Give it a name, and mark where it is."}</p>
  </details>`;
}
