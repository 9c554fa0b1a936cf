// A new tab gets the keys of a tab that is open; signing out in one signs out in all.
import { KEYS, key, setKey, signOut, url } from "./api.js";

const kinds = Object.keys(KEYS);
const channel = new BroadcastChannel(`earshot ${url("")}`);

/** Answer new tabs, and ask for keys if this tab has none. */
export function shareKeys() {
  const asking = !kinds.some(key);
  channel.onmessage = ({ data }) => {
    if (data.ask && kinds.some(key)) channel.postMessage({ keys: keysHere() });
    if (data.out) {
      for (const kind of kinds) if (data.out[kind] === key(kind)) setKey(kind, "");
      signOut(); // Passes of another link end too.
    }
    if (data.keys && asking && !kinds.some(key)) for (const kind of kinds) setKey(kind, data.keys[kind]);
  };
  if (asking) channel.postMessage({ ask: true });
}

/** Sign out in all tabs. */
export function signOutEverywhere() {
  channel.postMessage({ out: keysHere() });
  signOut();
}

function keysHere() {
  return Object.fromEntries(kinds.map((kind) => [kind, key(kind)]));
}
