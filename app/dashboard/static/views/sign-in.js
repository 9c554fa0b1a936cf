// Signing in with any of the three keys.
import { html, useState } from "../lib.js";
import { KEYS, get, key, setKey } from "../api.js";
import { Problem } from "../parts.js";

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

export default function SignIn({ title, needs, back }) {
  const [kind, setKind] = useState(needs ?? "project");
  const [text, setText] = useState("");
  const [error, setError] = useState(null);
  const [busy, setBusy] = useState(false);
  const submit = async (event) => {
    event.preventDefault();
    const pasted = text.trim();
    const chosen = pasted.startsWith("eso_") ? "organization" : pasted.startsWith("esp_") ? "project" : kind;
    const before = key(chosen);
    setBusy(true);
    setError(null);
    sessionStorage.setItem(`earshot.${chosen}`, pasted);
    try {
      await CHECKS[chosen]();
      setKey(chosen, pasted);
      if (back?.startsWith("#/sign-in") || !back) location.hash = chosen === "project" ? "#/try" : chosen === "organization" ? "#/speakers" : "#/operator";
    } catch (problem) {
      setKey(chosen, before);
      if (problem.status === 401) setError(new Error("This key is unknown or no longer valid."));
      else if (problem.status === 404 && chosen === "operator") setError(new Error("The operator's interface is off here, or has its own address."));
      else setError(problem);
    }
    setBusy(false);
  };
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
