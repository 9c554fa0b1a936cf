// For who runs the service: organizations, projects, and how it is.
import { html, useState, when } from "../lib.js";
import { get, request, url } from "../api.js";
import { Copy, Problem, useLoaded } from "../parts.js";

const operator = { as: "operator" };

export default function Operator() {
  const { value, error, loading, again } = useLoaded(
    async (signal) => {
      const [organizations, projects] = await Promise.all([get("/admin/v1/organizations", { ...operator, signal }), get("/admin/v1/projects", { ...operator, signal })]);
      return { organizations, projects };
    },
    [],
  );
  const [made, setMade] = useState(null);
  const [problem, setProblem] = useState(null);
  const make = async (path, body) => {
    setProblem(null);
    try {
      setMade(await (await request("POST", path, { ...operator, body })).json());
      again();
    } catch (refused) {
      setProblem(refused);
    }
  };
  return html`<${Health} />
    <${Problem} error=${error ?? problem} again=${error && again} />
    ${made ? html`<p class="card" role="status">Made ${(made.project ?? made.organization).name}. Its key, shown this once: <code class="key">${made.key}</code> <${Copy} text=${made.key} /></p>` : null}
    ${value
      ? value.organizations.map((one) => html`<section class="card" key=${one.id}><h2>${one.name} <span class="hint">${one.key_shown_as ?? "no key"}</span></h2>
          <div class="scroll" tabindex="0" role="group" aria-label="Table"><table><thead><tr><th>Project</th><th>Key</th><th>Plan</th><th>Made</th></tr></thead><tbody>
            ${value.projects.filter((project) => project.organization === one.id).map((project) => html`<tr><td>${project.name}</td><td><code>${project.key_shown_as ?? "none"}</code></td><td>${project.free_seconds === null ? "any amount" : `${project.free_seconds} s a month`}</td><td>${when(project.created_at)}</td></tr>`)}
          </tbody></table></div>
          <${Name} label="New project" onMake=${(name) => make("/admin/v1/projects", { name, organization: one.id })} /></section>`)
      : loading ? html`<p class="empty" role="status">Loading…</p>` : null}
    <div class="card"><${Name} label="New organization" onMake=${(name) => make("/admin/v1/organizations", { name })} /></div>`;
}

function Name({ label, onMake }) {
  const [name, setName] = useState("");
  return html`<form class="line" onSubmit=${(event) => { event.preventDefault(); onMake(name.trim()); setName(""); }}>
    <label>${label} <input maxlength="40" required value=${name} onInput=${(event) => setName(event.target.value)} /></label><button disabled=${!name.trim()}>Make</button></form>`;
}

function Health() {
  const ready = useLoaded(async (signal) => {
    const answer = await fetch(url("/readyz"), { signal, cache: "no-store" });
    return { ok: answer.ok, ...(await answer.json()) };
  }, []);
  const metrics = useLoaded(async (signal) => gauges(await (await fetch(url("/metrics"), { signal, cache: "no-store" })).text()), []);
  const again = () => { ready.again(); metrics.again(); };
  return html`<section class="card"><h2>Health</h2>
    <p role="status">${ready.value ? (ready.value.ok ? "Ready." : `Not ready: ${ready.value.error}`) : ready.error ? "This node does not answer." : "Asking…"} <button class="quiet" onClick=${again}>Refresh</button></p>
    ${metrics.value ? html`<div class="scroll" tabindex="0" role="group" aria-label="Table"><table><thead><tr><th>What</th><th>Value</th></tr></thead><tbody>${metrics.value.map(({ name, help, value }) => html`<tr><td>${help || name}</td><td>${value}</td></tr>`)}</tbody></table></div>` : null}
    <${Problem} error=${metrics.error} /></section>`;
}

/** Gauges without labels of the Prometheus text. */
function gauges(text) {
  const help = new Map();
  const kinds = new Map();
  const found = [];
  for (const line of text.split("\n")) {
    const [, word, name, rest] = line.match(/^# (HELP|TYPE) (\S+) (.*)$/) ?? [];
    if (word === "HELP") help.set(name, rest);
    else if (word === "TYPE") kinds.set(name, rest);
    else {
      const [, sample, value] = line.match(/^(earshot_[a-z_]+) (\S+)$/) ?? [];
      if (sample && kinds.get(sample) === "gauge") found.push({ name: sample, help: help.get(sample), value: Number(value).toLocaleString() });
    }
  }
  return found;
}
