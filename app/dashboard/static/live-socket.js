// The live socket of a session: sound goes out, sounds that begin and end come in. It goes on by itself after any break.
import { Refused, headers, key, pause, request, url } from "./api.js";
import { SOUND_EVENTS, Sounds } from "./events.js";
import { SILENCE } from "./streams.js";

/** Milliseconds after which a connection has held: its break counts as the first. */
const STEADY = 5000;

/** A text in the base64 of URLs. */
function base64url(text) {
  const letters = String.fromCharCode(...new TextEncoder().encode(text));
  return btoa(letters).replaceAll("+", "-").replaceAll("/", "_").replaceAll("=", "");
}

/** Whether another try can help after a close; a code that is 4000 and a status says no, except where it is about time. */
function isBreak(code, error) {
  return error?.retryAfter > 0 || code === 4408 || code === 4410 || (code < 4000 && code !== 1009);
}

export class LiveSocket {
  /** "connecting", "live", "cut", "blocked" (the service answers, and opens no socket), "refused" or "over". */
  status = "connecting";
  /** @type {Refused | null} Why it was closed. */
  error = null;
  sounds = new Sounds();
  /** Seconds of stored sound that wait for analysis. */
  behind = 0;
  /** What is not acknowledged yet, and the number of the first block of it. */
  #blocks = [];
  #first = 0;
  #ending = false;
  #closed = false;
  /** @type {WebSocket | null} After its hello. */
  #socket = null;
  #cut = () => {};

  /**
   * Listen to `session` behind the cursor `after`; or open a session of these `fields`, and send.
   * `changed()` is called when there is something new.
   */
  constructor({ session = "", after = "start", fields = /** @type {object | null} */ (null) }, changed) {
    this.session = session;
    this.after = after;
    // A second try that knows no session yet joins the one that the first has opened.
    this.fields = fields && { ...fields, request_id: crypto.randomUUID() };
    this.changed = changed;
  }

  /** Stay connected until all was said, or the service refuses. */
  async run() {
    for (let failures = 0; ; ) {
      const began = Date.now();
      const { code, opened } = await this.#connect();
      this.#socket = null;
      if (this.#closed) return;
      if (code === 1000) this.status = "over";
      else if (!isBreak(code, this.error)) this.status = "refused";
      else this.status = opened || !(await answers()) ? "cut" : "blocked";
      this.changed();
      if (this.status === "over" || this.status === "refused") return;
      failures = opened && Date.now() - began > STEADY ? 0 : failures + 1;
      await pause(failures, this.error?.retryAfter);
      if (this.#closed) return;
    }
  }

  /** Send a block of samples, now or once there is a connection. */
  send(block) {
    this.#blocks.push(block);
    this.#say(block);
  }

  /** How many blocks the service has not acknowledged. */
  get waiting() {
    return this.#blocks.length;
  }

  /** Nothing comes after what was sent. */
  end() {
    this.#ending = true;
    this.#say('{"type":"end"}');
  }

  /** Send it if there is a connection; one that is closing takes nothing, and the next one gets it all. */
  #say(message) {
    if (this.#socket?.readyState === WebSocket.OPEN) this.#socket.send(message);
  }

  /** Reconnect after an outage of the network: a listener would not notice that its connection is dead. */
  renew() {
    this.#cut();
  }

  close() {
    this.#closed = true;
    this.#cut();
  }

  /** End the session although the page goes away: no acknowledgement would come in time, and nobody would reconnect. */
  leave() {
    this.close();
    this.status = "over";
    if (!this.session) return;
    const sent = { method: "PATCH", keepalive: true, headers: { ...headers("project"), "Content-Type": "application/json" }, body: '{"make_readonly":true}' };
    fetch(url(`/audio_sessions/${this.session}`), sent).catch(() => {});
  }

  /** Return, when a connection has ended, its {code, opened}. */
  #connect() {
    const asked = { mode: this.fields ? "send" : "listen", events: SOUND_EVENTS.join(), after: this.after };
    const query = new URLSearchParams(this.session ? asked : { ...this.fields, ...asked });
    const path = url(this.session ? `/audio_sessions/${this.session}/socket` : "/api/v1/socket");
    const protocols = key("project") ? ["earshot.v1", `earshot.key64.${base64url(key("project"))}`] : ["earshot.v1"];
    this.error = null;
    return new Promise((resolve) => {
      const socket = new WebSocket(`${location.origin.replace(/^http/, "ws")}${path}?${query}`, protocols);
      let opened = false;
      let timer;
      const ended = (code) => {
        clearTimeout(timer);
        socket.onmessage = socket.onclose = null;
        socket.close();
        resolve({ code, opened });
      };
      // Who sends is answered; who listens may hear nothing for hours.
      const heard = () => {
        clearTimeout(timer);
        if (this.fields || !this.#socket) timer = setTimeout(() => ended(1006), 1000 * SILENCE);
      };
      heard();
      this.#cut = () => ended(1006);
      socket.onopen = () => (opened = true);
      socket.onclose = ({ code, reason }) => {
        if (!isBreak(code, this.error)) this.error ??= new Refused(0, reason || `The service closed the socket (${code}).`);
        ended(code);
      };
      socket.onmessage = ({ data }) => {
        this.#take(JSON.parse(data), socket);
        heard();
        this.changed();
      };
    });
  }

  #take(message, socket) {
    if (message.cursor) this.after = message.cursor;
    if ("next_chunk" in message && message.type !== "error") this.#acknowledged(message.next_chunk);
    if (message.type === "hello") {
      this.session = message.session_id;
      this.status = "live";
      this.#socket = socket;
      for (const block of this.#blocks) this.#say(block);
      if (this.#ending) this.end();
    } else if (message.type === "ack") this.behind = message.behind;
    else if (message.type === "error") this.error = new Refused(message.status_code, message.error, message.retry_after);
    else if (SOUND_EVENTS.includes(message.type)) this.sounds.take(message);
  }

  #acknowledged(next) {
    this.#blocks.splice(0, next - this.#first);
    this.#first = next;
  }
}

/** Whether the service answers requests. */
function answers() {
  return request("GET", "/readyz", { as: null }).then(() => true, () => false);
}
