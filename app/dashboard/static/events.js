// Sounds from their beginnings to their ends.

/** Windows {start, end, tags: [[name, probability], ...]} that follow one another with the same sound, as one event. */
export function joined(windows) {
  const last = new Map();
  const events = [];
  for (const { start, end, tags } of windows)
    for (const [tag, confidence] of tags) {
      const event = last.get(tag);
      if (event && start <= event.end) {
        event.end = end;
        event.confidence = Math.max(event.confidence, confidence);
      } else {
        const fresh = { tag, start, end, confidence };
        last.set(tag, fresh);
        events.push(fresh);
      }
    }
  return events.sort((one, other) => one.start - other.start || one.tag.localeCompare(other.tag));
}

/** The events that `Sounds` takes. */
export const SOUND_EVENTS = ["sound.started", "sound.ended"];

/** The session after an event of its source. */
export function afterSource(session, event, time) {
  return { ...session, source: event === "source.back" ? undefined : { state: event.replace("source.", ""), since: time } };
}

/** Sounds of a session as the service tells them: the last `MOST` of them, and those that are on, by name. */
export class Sounds {
  static MOST = 200;
  /** {name, start, end, probability, number}; `end` is null while the sound is on. */
  list = [];
  on = new Map();
  /** How many there were. */
  total = 0;

  /** Take one of `SOUND_EVENTS`; return the sound where it is a new one. */
  take({ type, name, start_time: start, end_time: end = null, probability }) {
    const begun = this.on.get(name);
    // A stream that begins tells what is on, also what came here before.
    if (type === "sound.started" && begun?.start === start) return null;
    if (type === "sound.ended" && begun) {
      Object.assign(begun, { start, end, probability });
      this.on.delete(name);
      return null;
    }
    // One may end that began before the events that came here.
    const sound = { name, start, end, probability, number: this.total++ };
    if (end === null) this.on.set(name, sound);
    this.list.push(sound);
    if (this.list.length > Sounds.MOST) this.list.shift();
    return sound;
  }
}
