// Sessions as they are heard: what came, counted at once, and shown a few times a second.
import { useEffect, useState } from "./lib.js";
import { get } from "./api.js";
import { SOUND_EVENTS, Sounds, afterSource } from "./events.js";
import { LiveSocket } from "./live-socket.js";
import { events, serviceTime } from "./streams.js";

/** Windows of a session that a table shows. */
const WINDOWS = 100;
/** How far back sounds are requested, in windows: two hours. */
const SOUNDS_BEFORE = 14_400;
/** Sounds of all sessions that the first screen shows. */
const SOUNDS = 50;
/** Milliseconds between two drawings of what is no picture: as fast as somebody reads. */
const PAUSE = 250;
/** Most sessions in memory; those that ended first are dropped. */
const SESSIONS = 400;
/** Pages of 1024 windows that are read again where some are missing. */
const PAGES = 4;
/** How often that is tried. */
const TRIES = 5;

/** What is known of one session. */
export class Heard {
  /** The number of the window that comes next, null before the first. */
  next = null;
  /** @type {any} */
  session = null;
  now = null;
  /** When the last window came, or the last chunk before this page was connected, by the service's clock. */
  at = 0;
  windows = 0;
  /** Tags that were reported. */
  reported = 0;
  missed = 0;
  ended = null;
  sounds = new Sounds();
  /** The last windows, with what they report. */
  list = [];
  /** Names of what was reported. */
  names = new Set();
  /** Strips of the spectrogram that are not drawn yet. */
  strips = [];
  behind = false;
  /** While windows that are missing are read: those that came meanwhile. */
  held = null;
  /** The window up to which they are read. */
  stop = 0;

  /** Take what the service says of the session. */
  meet(session) {
    this.session = session;
    this.at = Math.max(this.at, Date.parse(session.updated_at));
  }

  /** Take a window; one that came before is ignored. */
  take(window) {
    if (this.next !== null && window.window < this.next) return false;
    this.next = window.window + 1;
    // One that was analysed before this page was connected does not come now.
    if (window.end_time > (this.session?.seconds ?? 0)) this.at = serviceTime();
    const tags = window.tags.filter((tag) => tag.name !== "Others");
    this.windows += 1;
    this.reported += tags.length;
    for (const tag of tags) this.names.add(tag.name);
    this.list.push({ window: window.window, start: window.start_time, end: window.end_time, tags });
    if (this.list.length > WINDOWS) this.list.shift();
    this.now = { ...window, top: window.top ?? tags.slice(0, 5) };
    this.behind = this.behind && !window.level;
    if (window.strip) this.strips.push(window.strip);
    // A picture holds a minute or two; what nobody draws is forgotten.
    if (this.strips.length > 400) this.strips.splice(0, 200);
    return true;
  }
}

/** Call `draw` in an animation frame soon after `changed()`, and not again before a pause. */
export function paced(draw) {
  let due = false;
  let drawn = -Infinity;
  const frame = () => requestAnimationFrame((now) => {
    due = false;
    drawn = now;
    draw();
  });
  return () => {
    if (due) return;
    due = true;
    const wait = drawn + PAUSE - performance.now();
    if (wait > 0) setTimeout(frame, wait);
    else frame();
  };
}

/**
 * Listen to one session, from `from` on: {heard, status, error, socket}; `status` is "loading", "open", "broken" or "over".
 * Its sounds come by `sending`, the socket that sends for it, or by one that listens.
 */
export function useSession(id, from, sending = /** @type {LiveSocket | null} */ (null)) {
  const [state, set] = useState({ heard: new Heard(), status: "loading", error: null, socket: sending });
  useEffect(() => {
    if (!id) return undefined;
    const stop = new AbortController();
    const heard = new Heard();
    let socket = sending;
    let status = "loading";
    let error = null;
    const show = () => stop.signal.aborted || set({ heard, status, error, socket });
    const changed = paced(show);
    const meet = (session) => {
      heard.meet(session);
      const first = session.next_window - SOUNDS_BEFORE;
      if (!socket) {
        socket = new LiveSocket({ session: id, after: first > 0 ? `${first}` : "start" }, changed);
        socket.run();
      }
      heard.sounds = socket.sounds;
    };
    (async () => {
      const last = ["ended", "deleted"];
      for await (const { event, data } of events(`/audio_sessions/${id}/live?from=${from}`, stop.signal, { last })) {
        if (event === "window") heard.take(data);
        else if (event === "session") meet(data);
        else if (event === "behind") heard.behind = true;
        else if (last.includes(event)) {
          heard.ended = { how: event, ...data };
          status = "over";
        } else if (event === "open" || event === "broken") status = event;
        if (event === "broken" && !sending) socket?.renew();
        changed();
      }
    })().catch((problem) => {
      error = problem;
      status = "over";
      changed();
    });
    return () => {
      stop.abort();
      if (!sending) socket?.close();
    };
  }, [id]);
  return state;
}

/** All sessions of the project by one stream; components take part by `subscribe`. */
export class Listening {
  sessions = new Map();
  status = "loading";
  /** @type {Error | null} */
  error = null;
  missing = null;
  windows = 0;
  reported = 0;
  /** Sounds of all sessions: {id, sound}, the last ones. */
  sounds = [];
  readers = new Map();
  fresh = new Set();
  changed = paced(() => {
    const fresh = ["", ...this.fresh];
    this.fresh.clear();
    for (const id of fresh) for (const reader of this.readers.get(id) ?? []) reader();
  });

  /** Call `reader` when a session changed, or with "" when anything did; returns how to stop that. */
  subscribe(id, reader) {
    const readers = this.readers.get(id) ?? new Set();
    this.readers.set(id, readers.add(reader));
    return () => readers.delete(reader);
  }

  async run(signal) {
    try {
      for await (const { event, data } of events("/api/v1/live", signal, { last: [] })) {
        this.take(event, data, signal);
        this.changed();
      }
    } catch (error) {
      if (signal.aborted) return;
      this.error = error;
      this.changed();
    }
  }

  take(event, data, signal) {
    if (event === "open" || event === "broken") this.status = event;
    else if (event === "missing") this.missing = data.partitions ? data : null;
    else if (event === "session") this.meet(data, signal);
    else if (event === "window") this.window(data, signal);
    else if (SOUND_EVENTS.includes(event)) this.sound({ ...data, type: event });
    else if (event.startsWith("source.")) {
      const heard = this.sessions.get(data.session_id);
      if (heard) heard.session = afterSource(heard.session, event, data.time);
    }
    else if (event === "ended" || event === "deleted") {
      const heard = this.sessions.get(data.session_id);
      if (heard) heard.ended = { how: event, ...data };
      if (event === "deleted") this.sessions.delete(data.session_id);
      if (this.sessions.size > SESSIONS) {
        const first = [...this.sessions].find(([, one]) => one.ended);
        if (first) this.sessions.delete(first[0]);
      }
    }
    if (data?.session_id) this.fresh.add(data.session_id);
  }

  meet(session, signal) {
    let heard = this.sessions.get(session.session_id);
    if (!heard) this.sessions.set(session.session_id, (heard = new Heard()));
    heard.meet(session);
    heard.next ??= session.next_window;
    if (session.next_window <= heard.next) return;
    this.fill(heard, session.next_window, signal);
    heard.sounds = new Sounds(); // Those that were on may have ended meanwhile.
  }

  window(window, signal) {
    const heard = this.sessions.get(window.session_id);
    if (!heard) return;
    if (!heard.held && window.window > heard.next) this.fill(heard, window.window, signal);
    if (heard.held) heard.held.push(window);
    else this.count(heard, window);
  }

  sound(event) {
    const heard = this.sessions.get(event.session_id);
    const sound = heard?.sounds.take(event);
    if (sound) this.sounds.push({ id: event.session_id, sound });
    if (this.sounds.length > SOUNDS) this.sounds.shift();
  }

  count(heard, window) {
    const before = heard.reported;
    if (!heard.take(window)) return;
    this.windows += 1;
    this.reported += heard.reported - before;
    heard.strips.length = 0;
  }

  /** Read windows up to `stop` that did not come, as after a break. A reading that is under way goes on to there. */
  async fill(heard, stop, signal) {
    heard.stop = Math.max(heard.stop, stop);
    if (heard.held) return;
    heard.held = [];
    const id = heard.session.session_id;
    if (heard.stop - heard.next > PAGES * 1024) {
      heard.missed += heard.stop - heard.next - PAGES * 1024;
      heard.next = heard.stop - PAGES * 1024;
    }
    for (let failures = 0; heard.next < heard.stop && failures < TRIES; ) {
      const first = heard.next;
      try {
        const count = Math.min(1024, heard.stop - first);
        const { inference } = await get(`/audio_sessions/${id}/status?offset=${first}&count=${count}`, { signal });
        inference.results.forEach((one, place) => this.count(heard, { ...one, window: first + place }));
        if (heard.next === first) break;
      } catch (problem) {
        // It is gone, or the network is away still: a connection of before may break once more.
        if (signal.aborted || (problem.status && problem.status < 500)) break;
        failures += 1;
        await new Promise((resolve) => setTimeout(resolve, 200 * 2 ** failures));
      }
    }
    if (heard.next < heard.stop) {
      heard.missed += heard.stop - heard.next;
      heard.next = heard.stop;
    }
    const held = heard.held;
    heard.held = null;
    for (const window of held) this.window(window, signal);
    this.fresh.add(id);
    this.changed();
  }
}

/** What `Listening` knows of one session, or of all, drawn again when it changes. */
export function useHeard(listening, id = "") {
  const [, redraw] = useState(0);
  useEffect(() => listening.subscribe(id, () => redraw((count) => count + 1)), [listening, id]);
  return id ? listening.sessions.get(id) : listening;
}
