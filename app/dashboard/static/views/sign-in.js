// Signing in with any of the three keys.
import { html, useState } from "../lib.js";
import { KEYS, get, key, setKey } from "../api.js";
import { Problem, useLoaded } from "../parts.js";

const CHECKS = {
  project: () => get("/api/v1/project"),
  organization: () => get("/api/v2/speakers", { as: "organization" }),
  operator: () => get("/admin/v1/organizations", { as: "operator" }),
};
const WHOSE = {
  project: "The first start printed the demo project's key in its terminal. Ask the operator for other keys.",
  organization: "The first start printed the demo organization's key in its terminal. Ask the operator for other keys.",
  operator: "It is the value of EARSHOT_ADMIN_KEY.",
};
const WHAT = {
  project: "Recordings, live audio, usage: begins with esp_",
  organization: "Speakers: begins with eso_",
  operator: "Organizations, projects and health: what EARSHOT_ADMIN_KEY is set to",
};
const HOME = { project: "#/try", organization: "#/speakers", operator: "#/operator" };

/** Why the operator's key opens nothing here. */
function NoOperator() {
  return html`<div class="card narrow"><p><strong>The operator's interface is off here, or has its own address.</strong></p>
    <p>To switch it on, make a key of 20 characters or more, and start the service again with it:</p>
    <pre>(umask 077; openssl rand -hex 16 > admin-key)\nEARSHOT_ADMIN_KEY_FILE=admin-key make run</pre>
    <p>Then sign in with the line in the file <code>admin-key</code>. If <code>EARSHOT_ADMIN_LISTEN</code> is set, this page cannot reach the interface: use <code>earshot cluster --url</code>.</p>
    <p>Without it, the commands <code>earshot org</code>, <code>earshot project</code>, <code>earshot key</code> and <code>earshot usage</code> work on the service's machine.</p></div>`;
}

export default function SignIn({ title, needs }) {
  const [picked, setKind] = useState(needs ?? "project");
  const [text, setText] = useState("");
  const [error, setError] = useState(null);
  const [busy, setBusy] = useState(false);
  const pasted = text.trim();
  const kind = pasted.startsWith("eso_") ? "organization" : pasted.startsWith("esp_") ? "project" : picked;
  // Without a key it is 401, or 404 if there is no such interface.
  const operator = useLoaded(async (signal) => needs === "operator" && get("/admin/v1/organizations", { as: null, signal }), [needs]);
  const submit = async (event) => {
    event.preventDefault();
    const before = key(kind);
    setBusy(true);
    setError(null);
    sessionStorage.setItem(`earshot.${kind}`, pasted);
    try {
      await CHECKS[kind]();
      setKey(kind, pasted);
      if (kind !== needs) location.hash = HOME[kind]; // The view that was asked for does not open with this key.
    } catch (problem) {
      setKey(kind, before);
      if (problem.status === 401) setError(new Error(`This is no valid ${KEYS[kind].label.toLowerCase()}. If it is another kind of key, choose that above.`));
      else if (problem.status === 404 && kind === "operator") setError(new Error("The operator's interface is off here, or has its own address."));
      else setError(problem);
    }
    setBusy(false);
  };
  if (operator.error?.status === 404) return html`<${NoOperator} /><p><a href="#/sign-in">Sign in with another key</a></p>`;
  return html`<form class="card narrow" onSubmit=${submit}>
    ${needs ? html`<p><strong>${needs === "operator" ? "This view" : title} needs the ${KEYS[needs].label.toLowerCase()}.</strong> ${WHOSE[needs]} <a href="#/sign-in">Sign in with another key</a></p>` : null}
    <fieldset><legend>Which key</legend>
      ${Object.entries(KEYS).map(([name, one]) => html`<label class="choice">
        <input type="radio" name="kind" checked=${kind === name} onChange=${() => setKind(name)} />
        <span>${one.label}<small>${WHAT[name]}</small></span></label>`)}
    </fieldset>
    <label>Key <input type="password" autocomplete="off" spellcheck=${false} required value=${text} onInput=${(event) => setText(event.target.value)} /></label>
    <p class="hint">It stays in this browser's Earshot tabs, and is forgotten when the last one is closed.</p>
    <${Problem} error=${error} />
    <button class="main" disabled=${busy || !text.trim()}>Sign in</button>
  </form>`;
}
