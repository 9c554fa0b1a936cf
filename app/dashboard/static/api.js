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
  const passes = { ...headers("project"), ...headers("organization") };
  fetch(url("/dashboard/sign-out"), { method: "POST", headers: passes, keepalive: true }).catch(() => {});
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
  constructor(status, message, retryAfter) {
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

/** Answer of a request; throws Refused, or a TypeError where nothing answers. */
export async function request(method, path, { as = "project", body, signal, more = {} } = {}) {
  const json = body !== undefined && !(body instanceof FormData) && !(body instanceof Blob);
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

export async function get(path, options) {
  return (await request("GET", path, options)).json();
}

export async function refusal(answer) {
  const text = await answer.text();
  return refusalOf(answer.status, text, (name) => answer.headers.get(name));
}

function refusalOf(status, text, header) {
  let message = header("earshot-reason") || text || `status ${status}`;
  try {
    const said = JSON.parse(text);
    message = said.details ? said.details.map((one) => `${one.loc.slice(1).join(".")}: ${one.msg}`).join("; ") : said.error || message;
  } catch {
    // Plain text, as the interface has it for some errors.
  }
  return new Refused(status, message, Number(header("retry-after")) || 0);
}

/** Upload a form and tell how far it is (0 to 1): `fetch` does not. */
export function upload(path, form, progress, signal) {
  return new Promise((resolve, reject) => {
    const http = new XMLHttpRequest();
    http.open("POST", url(path));
    for (const [name, value] of Object.entries(headers("project"))) http.setRequestHeader(name, value);
    http.upload.onprogress = (event) => event.lengthComputable && progress(event.loaded / event.total);
    http.onload = () => {
      if (http.status < 300) resolve(JSON.parse(http.responseText));
      else reject(refusalOf(http.status, http.responseText, (name) => http.getResponseHeader(name)));
    };
    http.onerror = () => reject(new TypeError("the service does not answer"));
    http.onabort = () => reject(new DOMException("stopped", "AbortError"));
    signal?.addEventListener("abort", () => http.abort());
    http.send(form);
  });
}

/**
 * Yield {event, data} of a stream of server-sent events; it is asked for again where it broke off, until one of the
 * events that are its `last` came. Beside its own events there is `open` whenever it answers, and `broken` when it ends.
 */
export async function* events(path, signal, { as = "project", last: ends = ["completed"] } = {}) {
  let last = "";
  for (let failures = 0; !signal.aborted; ) {
    let problem = null;
    try {
      const answer = await request("GET", path, { signal, as, more: last ? { "Last-Event-ID": last } : {} });
      yield { event: "open" };
      const reader = answer.body.pipeThrough(new TextDecoderStream()).getReader();
      let held = "";
      for (;;) {
        const { value, done } = await reader.read();
        if (done) break;
        failures = 0;
        const blocks = (held + value).split("\n\n");
        held = blocks.pop();
        for (const block of blocks) {
          const said = Object.fromEntries(block.split("\n").map((line) => [line.slice(0, line.indexOf(":")), line.slice(line.indexOf(":") + 2)]));
          if (said.id) last = said.id;
          if (!said.event) continue;
          yield { event: said.event, data: JSON.parse(said.data) };
          if (ends.includes(said.event)) return;
        }
      }
    } catch (error) {
      if (signal.aborted || (error instanceof Refused && error.status < 500)) throw error;
      problem = error;
    }
    failures += 1;
    yield { event: "broken", data: problem };
    await new Promise((resolve) => setTimeout(resolve, Math.max(1000 * (problem?.retryAfter ?? 0), Math.min(10_000, 300 * 2 ** failures))));
  }
}
