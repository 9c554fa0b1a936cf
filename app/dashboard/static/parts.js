// Pieces that several views are made of.
import { html, hue, tagName, useEffect, useRef, useState } from "./lib.js";
import { RETRY, get } from "./api.js";

export { Problem, Progress } from "./problem.js";

/** What `load(signal)` returns, as {value, error, loading, again}; asked for again when `on` changes, and while the service is away. */
export function useLoaded(load, on) {
  const [state, set] = useState({ loading: true });
  const [turn, setTurn] = useState(0);
  useEffect(() => {
    const stop = new AbortController();
    let timer;
    set((before) => ({ ...before, loading: true }));
    load(stop.signal).then(
      (value) => stop.signal.aborted || set({ value, loading: false }),
      (error) => {
        if (stop.signal.aborted) return;
        set({ error, loading: false });
        if (error instanceof TypeError) timer = setTimeout(() => setTurn((count) => count + 1), RETRY);
      },
    );
    return () => {
      stop.abort();
      clearTimeout(timer);
    };
  }, [...on, turn]);
  return { ...state, again: () => setTurn((count) => count + 1) };
}

/** The rows named `name` of a list that comes page by page, as {rows, value, error, loading, again, more, refresh}. */
export function usePages(path, name) {
  const [rows, setRows] = useState([]);
  const [token, setToken] = useState("");
  const further = token ? `&next_token=${encodeURIComponent(token)}` : "";
  const { value, error, loading, again } = useLoaded((signal) => get(`${path}${further}`, { signal }), [path, token]);
  useEffect(() => { setRows([]); setToken(""); }, [path]);
  useEffect(() => { if (value) setRows((before) => (token ? [...before, ...value[name]] : value[name])); }, [value]);
  const more = value?.next_token ? () => setToken(value.next_token) : null;
  const refresh = () => {
    setToken("");
    again();
  };
  return { rows, value, error, loading, again, more, refresh };
}

/** A number and a noun that has its plural by an s. */
export function some(count, noun) {
  return `${count} ${noun}${count === 1 ? "" : "s"}`;
}

/** Name this tab after what it shows. */
export function useTitle(name) {
  useEffect(() => { if (name) document.title = `${name} · Earshot`; }, [name]);
}

/** A button that copies a text, or what `text()` returns, and says that it did; else the reader copies what it marks. */
export function Copy({ text, label = "Copy" }) {
  const [said, say] = useState("");
  const [marked, mark] = useState(null);
  const area = useRef(null);
  const copied = () => {
    mark(null);
    say("Copied");
    setTimeout(() => say(""), 2000);
  };
  const copy = async () => {
    const words = typeof text === "function" ? text() : text;
    // Over plain HTTP browsers have no clipboard for scripts; the old command may work there.
    await (navigator.clipboard?.writeText(words) ?? Promise.reject()).then(copied, () => mark(words));
  };
  useEffect(() => {
    if (!area.current) return;
    area.current.select();
    if (document.execCommand("copy")) copied();
    else say("Press Ctrl+C");
  }, [marked]);
  return html`<button class="quiet" onClick=${copy}><span aria-live="polite">${said || label}</span></button>
    ${marked === null ? null : html`<textarea ref=${area} readonly rows="1" aria-label="Text to copy" onCopy=${() => setTimeout(copied)}>${marked}</textarea>`}`;
}

/** A dialog that asks before something that cannot be undone; with `typed`, that has to be typed first. */
export function Sure({ question, children, action, typed, onYes, onNo }) {
  const [text, setText] = useState("");
  return html`<dialog ref=${(element) => element && !element.open && element.showModal()} onClose=${onNo} aria-label=${question}>
    <h2>${question}</h2>
    ${children}
    ${typed ? html`<label class="line">Type <strong>${typed}</strong> <input autocomplete="off" spellcheck=${false} value=${text} onInput=${(event) => setText(event.target.value)} /></label>` : null}
    <p class="actions"><button class="danger" disabled=${Boolean(typed) && text !== typed} onClick=${onYes}>${action}</button> <button onClick=${onNo} autofocus>Cancel</button></p>
  </dialog>`;
}

/** A key or secret that nothing shows again. */
export function Once({ thing = "key", what, value, onDone }) {
  return html`<div class="card" role="status"><p>The ${thing} of <strong>${what}</strong>, shown only once:</p>
    <p class="line"><code class="key">${value}</code> <${Copy} text=${value} /></p>
    <p><button onClick=${onDone}>I have kept it</button></p></div>`;
}

/** What scrolls by itself where the page is narrow, and fades out at the sides where there is more. */
export function Wide({ label = "Table", area: given, children }) {
  const own = useRef(null);
  const area = given ?? own;
  useEffect(() => {
    const element = area.current;
    const look = () => {
      element.dataset.left = String(element.scrollLeft > 1);
      element.dataset.right = String(element.scrollLeft + element.clientWidth < element.scrollWidth - 1);
    };
    const sized = new ResizeObserver(look);
    for (const one of [element, element.firstElementChild]) sized.observe(one);
    element.addEventListener("scroll", look, { passive: true });
    return () => sized.disconnect();
  }, []);
  return html`<div class="scroll" ref=${area} tabindex="0" role="group" aria-label=${label}>${children}</div>`;
}

export function Table({ label, head, children }) {
  return html`<${Wide} label=${label}><table aria-label=${label}>
    <thead><tr>${head.map((name) => html`<th scope="col">${name}</th>`)}</tr></thead><tbody>${children}</tbody></table><//>`;
}

/** The name of a sound, behind its colour. */
export function Dot({ name }) {
  return html`<span class=${`dot ${hue(name)}`}></span>${tagName(name)}`;
}

/** Good, slow, bad or old, in a word, a sign and a colour. */
export function State({ state, children }) {
  return html`<span class=${`state ${state}`}><span aria-hidden="true">${{ good: "●", slow: "▲", bad: "■", old: "○" }[state]}</span> ${children ?? state[0].toUpperCase() + state.slice(1)}</span>`;
}

/** Call `again` every so many seconds while the page is looked at, and at once when it is again. */
export function useWhileSeen(again, seconds) {
  useEffect(() => {
    const timer = setInterval(() => document.hidden || again(), 1000 * seconds);
    const seen = () => document.hidden || again();
    document.addEventListener("visibilitychange", seen);
    return () => {
      clearInterval(timer);
      document.removeEventListener("visibilitychange", seen);
    };
  }, []);
}
