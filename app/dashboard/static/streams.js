// Streams of server-sent events.
import { Refused, ask, pause, watch } from "./api.js";

/** Seconds of silence after which a stream is broken: the service sends something every ten. */
export const SILENCE = 25;

/** Milliseconds by which the service's clock is ahead of the browser's. */
let ahead = 0;

/** The time by the service's clock, as its sessions have it: milliseconds since 1970. */
export function serviceTime() {
  return Date.now() + ahead;
}

/**
 * Yield {event, data} of a stream of server-sent events; it is asked for again where it broke off, until one of the
 * events that are its `last` came. Beside its own events there is `open` whenever it answers, and `broken` when it ends.
 * @returns {AsyncGenerator<{event: string, data?: any}>}
 */
export async function* events(path, signal, /** @type {{as?: string | null, last?: string[]}} */ { as = "project", last: ends = ["completed"] } = {}) {
  let last = "";
  for (let failures = 0; !signal.aborted; ) {
    /** @type {any} */
    let problem = null;
    const watched = watch(signal, SILENCE);
    try {
      const answer = await ask("GET", path, { signal: watched.signal, as, more: last ? { "Last-Event-ID": last } : {} });
      ahead = Date.parse(answer.headers.get("Date") ?? "") - Date.now() || ahead;
      yield { event: "open" };
      const reader = /** @type {ReadableStream} */ (answer.body).pipeThrough(new TextDecoderStream()).getReader();
      let held = "";
      for (;;) {
        const { value, done } = await reader.read();
        if (done) break;
        watched.heard();
        failures = 0;
        const blocks = (held + value).split("\n\n");
        held = blocks.pop() ?? "";
        for (const block of blocks) {
          const said = Object.fromEntries(block.split("\n").map((line) => /^(.*?): ?(.*)$/s.exec(line)?.slice(1) ?? [line, ""]));
          if (said.id) last = said.id;
          if (!said.event) continue;
          yield { event: said.event, data: JSON.parse(said.data) };
          if (ends.includes(said.event)) return;
        }
      }
    } catch (error) {
      if (signal.aborted || (error instanceof Refused && error.status < 500)) throw error;
      problem = error;
    } finally {
      watched.end();
    }
    failures += 1;
    yield { event: "broken", data: problem };
    await pause(failures, problem?.retryAfter);
  }
}
