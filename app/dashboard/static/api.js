// The public interface, and the keys of this tab. Nothing here is known to the dashboard alone.

/** Keys live in this tab: they survive a reload and end with it. */
export const KEYS = {
  project: { header: "X-Api-Key", label: "Project key" },
  organization: { header: "X-Org-Key", label: "Organization key" },
  operator: { header: "Authorization", label: "Operator's key" },
};

const listeners = new Set();
const base = new URL("..", document.baseURI).pathname.replace(/\/$/, "");

export function key(kind) {
  return sessionStorage.getItem(`earshot.${kind}`) ?? "";
}

export function setKey(kind, value) {
  if (value) sessionStorage.setItem(`earshot.${kind}`, value);
  else sessionStorage.removeItem(`earshot.${kind}`);
  for (const listener of listeners) listener();
}

/** Forget the keys of this tab; its passes end in the service too. */
export function signOut() {
  const pass = (kind) => (key(kind).startsWith("pass_") ? key(kind) : null);
  const passes = { project: pass("project"), organization: pass("organization") };
  if (passes.project || passes.organization) {
    fetch(url("/dashboard/sign-out"), { method: "POST", body: JSON.stringify(passes), keepalive: true }).catch(() => {});
  }
  for (const kind of Object.keys(KEYS)) sessionStorage.removeItem(`earshot.${kind}`);
  for (const listener of listeners) listener();
}

/** Call `listener` whenever a key comes or goes; returns how to stop that. */
export function onKeys(listener) {
  listeners.add(listener);
  return () => listeners.delete(listener);
}

/** A request that was refused, with the service's own words. */
export class Refused extends Error {
  constructor(status, message, retryAfter = 0) {
    super(message);
    this.status = status;
    this.retryAfter = retryAfter;
  }
}

export function url(path) {
  return base + path;
}

export function headers(kind) {
  const value = kind ? key(kind) : "";
  if (!value) return {};
  return { [KEYS[kind].header]: kind === "operator" ? `Bearer ${value}` : value };
}

/** Milliseconds after which a service that did not answer is asked again. */
export const RETRY = 5000;
/** Seconds after which a request without an answer has failed; one that sends a recording may take longer. */
const PATIENCE = 30;
const PATIENCE_WITH_AUDIO = 300;

/** @typedef {{as?: string | null, body?: any, signal?: AbortSignal, more?: Record<string, string>}} Options */

/** Wait before another try: as long as the service says, and longer after each failure. */
export function pause(failures, retryAfter = 0) {
  return new Promise((resolve) => setTimeout(resolve, Math.max(1000 * retryAfter, Math.min(10_000, 300 * 2 ** failures))));
}

/** A signal that aborts with `signal`, and `seconds` after the last call of `heard()` or the beginning. */
export function watch(signal, seconds) {
  const silent = new AbortController();
  let timer;
  const end = () => clearTimeout(timer);
  const heard = () => {
    end();
    timer = setTimeout(() => silent.abort(new TypeError("the service does not answer")), 1000 * seconds);
  };
  heard();
  return { signal: signal ? AbortSignal.any([signal, silent.signal]) : silent.signal, heard, end };
}

/** Return the answer to a request; throw Refused, or a TypeError if the service does not answer in time. */
export async function request(method, path, /** @type {Options} */ { signal, body, ...options } = {}) {
  const watched = watch(signal, body instanceof FormData ? PATIENCE_WITH_AUDIO : PATIENCE);
  try {
    const answer = await ask(method, path, { signal: watched.signal, body, ...options });
    watched.heard();
    if (answer.status === 204) return answer; // An answer without a body cannot be rebuilt with one.
    // A long body may take longer, as long as it comes.
    const transform = (piece, out) => {
      watched.heard();
      out.enqueue(piece);
    };
    return new Response(answer.body?.pipeThrough(new TransformStream({ transform, flush: watched.end })), answer);
  } catch (error) {
    watched.end();
    throw error;
  }
}

export async function ask(method, path, /** @type {Options} */ { as = "project", body, signal, more = {} }) {
  const json = body !== undefined && !(body instanceof FormData);
  const answer = await fetch(url(path), {
    method,
    signal,
    cache: "no-store",
    headers: { ...headers(as), ...(json ? { "Content-Type": "application/json" } : {}), ...more },
    body: json ? JSON.stringify(body) : body,
  });
  if (!answer.ok) throw await refusal(answer);
  return answer;
}

export async function get(path, /** @type {Options} */ options = {}) {
  return (await request("GET", path, options)).json();
}

async function refusal(answer) {
  const text = await answer.text();
  return refusalOf(answer.status, text, (name) => answer.headers.get(name));
}

function refusalOf(status, text, header) {
  // Some errors are plain text. A page of HTML is a proxy's.
  const words = /^[^<]{1,300}$/.test(text) ? text : `A proxy or the service answered ${status}.`;
  let message = header("earshot-reason") || words;
  try {
    const said = JSON.parse(text);
    message = said.details ? said.details.map((one) => `${one.loc.slice(1).join(".")}: ${one.msg}`).join("; ") : said.error || message;
  } catch {
    // Not JSON.
  }
  return new Refused(status, message, Number(header("retry-after")) || 0);
}

/** Upload a form and tell how far it is (0 to 1): `fetch` does not. The same `once` twice makes one job. */
export function upload(path, form, progress, signal, once) {
  return new Promise((resolve, reject) => {
    const http = new XMLHttpRequest();
    const watched = watch(signal, PATIENCE_WITH_AUDIO);
    http.open("POST", url(path));
    for (const [name, value] of Object.entries({ ...headers("project"), "Idempotency-Key": once })) http.setRequestHeader(name, value);
    http.upload.onprogress = (event) => {
      watched.heard();
      if (event.lengthComputable) progress(event.loaded / event.total);
    };
    http.onloadend = watched.end;
    http.onload = () => {
      if (http.status < 300) resolve(JSON.parse(http.responseText));
      else reject(refusalOf(http.status, http.responseText, (name) => http.getResponseHeader(name)));
    };
    http.onerror = () => reject(new TypeError("the service does not answer"));
    http.onabort = () => reject(watched.signal.reason);
    watched.signal.addEventListener("abort", () => http.abort());
    http.send(form);
  });
}
