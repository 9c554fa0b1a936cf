// Windows that follow one another with the same sound, as one event.

/**
 * Events of windows {start, end, tags: [[name, probability], ...]} in order of time: {tag, start, end, confidence},
 * by their beginning, then by name.
 */
export function joined(windows) {
  const open = new Map();
  const events = [];
  for (const { start, end, tags } of windows)
    for (const [tag, confidence] of tags) {
      const event = open.get(tag);
      if (event && start <= event.end) {
        event.end = end;
        event.confidence = Math.max(event.confidence, confidence);
      } else {
        const fresh = { tag, start, end, confidence };
        open.set(tag, fresh);
        events.push(fresh);
      }
    }
  return events.sort((one, other) => one.start - other.start || one.tag.localeCompare(other.tag));
}
