// Windows that follow one another with the same sound, as one event.

/** Events of windows {start, end, tags: [[name, probability], ...]} that are added in order of time, the last `most`. */
export class Events {
  open = new Map();
  list = [];
  /** How many there were. */
  total = 0;

  constructor(most = Infinity) {
    this.most = most;
  }

  add({ start, end, tags }) {
    for (const [tag, confidence] of tags) {
      const event = this.open.get(tag);
      if (event && start <= event.end) {
        event.end = end;
        event.confidence = Math.max(event.confidence, confidence);
      } else {
        const fresh = { tag, start, end, confidence, number: this.total++ };
        this.open.set(tag, fresh);
        this.list.push(fresh);
        if (this.list.length > this.most) this.list.shift();
      }
    }
  }
}

/** Events of windows in order of time: {tag, start, end, confidence}, by their beginning, then by name. */
export function joined(windows) {
  const events = new Events();
  for (const window of windows) events.add(window);
  return events.list.sort((one, other) => one.start - other.start || one.tag.localeCompare(other.tag));
}
