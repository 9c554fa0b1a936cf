// A new tab gets the keys of a tab that is open; signing out in one signs out in all.
import { KEYS, key, setKey, url } from "./api.js";

const kinds = Object.keys(KEYS);
const channel = new BroadcastChannel(`earshot ${url("")}`);

/** Answer new tabs, and ask for keys if this tab has none. */
export function shareKeys() {
  const asking = !kinds.some(key);
  channel.onmessage = ({ data }) => {
    if (data.ask && kinds.some(key)) channel.postMessage({ keys: Object.fromEntries(kinds.map((kind) => [kind, key(kind)])) });
    if (data.out) for (const kind of kinds) setKey(kind, "");
    if (data.keys && asking && !kinds.some(key)) for (const kind of kinds) setKey(kind, data.keys[kind]);
  };
  if (asking) channel.postMessage({ ask: true });
}

/** Sign out in the other tabs. */
export function signOutElsewhere() {
  channel.postMessage({ out: true });
}
