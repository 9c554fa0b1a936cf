// For who runs the service: how it is, organizations and projects, and what they used.
import { html, lengthInWords, tagName, useState, when } from "../lib.js";
import { get, request } from "../api.js";
import { Health } from "../health.js";
import { Once, Problem, Sure, Table, useLoaded } from "../parts.js";

const operator = { as: "operator" };

/** The address of an organization or a project, by its id. */
const place = (kind, one) => `/admin/v1/${kind}s/${encodeURIComponent(one.id)}`;

export default function Operator() {
  const accounts = useLoaded(async (signal) => {
    const [organizations, projects] = await Promise.all(["organizations", "projects"].map((kind) => get(`/admin/v1/${kind}`, { ...operator, signal })));
    return { organizations, projects };
  }, []);
  const [fresh, setFresh] = useState([]);
  const [asked, setAsked] = useState(null);
  const [problem, setProblem] = useState(null);
  /** Do something, show the key that comes of it, and look again. */
  const act = async (method, path, body, what) => {
    setAsked(null);
    setProblem(null);
    try {
      const answer = await request(method, path, { ...operator, body });
      if (answer.status !== 204) {
        const said = await answer.json();
        setFresh((before) => [...before, { what: what ?? (said.project ?? said.organization).name, value: said.key }]);
      }
      accounts.again();
    } catch (refused) {
      setProblem(refused);
    }
  };
  const { value, error, loading, again } = accounts;
  return html`<${Health} />
    <h2 id="accounts">Organizations and projects</h2>
    <${Problem} error=${error ?? problem} again=${error && again} />
    ${fresh.map((one) => html`<${Once} key=${one.value} ...${one} onDone=${() => setFresh((before) => before.filter((other) => other !== one))} />`)}
    ${value
      ? value.organizations.length
        ? value.organizations.map((one) => html`<${Organization} key=${one.id} one=${one} projects=${value.projects.filter((project) => project.organization === one.id)} onAsk=${setAsked} act=${act} />`)
        : html`<p class="empty">There is no organization yet: make one, then a project in it.</p>`
      : loading ? html`<p class="empty" role="status">Loading…</p>` : null}
    <div class="card"><${Name} label="New organization" onMake=${(name) => act("POST", "/admin/v1/organizations", { name })} /></div>
    <${Usage} projects=${value?.projects ?? []} />
    ${asked ? html`<${Sure} ...${asked} onYes=${asked.yes} onNo=${() => setAsked(null)}>${asked.text}<//>` : null}`;
}

function Organization({ one, projects, onAsk, act }) {
  const rotate = () => onAsk({
    question: `Make a new key of ${one.name}?`,
    action: "Make a new key",
    text: html`<p>The organization's key stops working, here at once, on other nodes within a minute: nobody can list, register or test voices with it any more. Its projects keep their keys.</p>`,
    yes: () => act("POST", `${place("organization", one)}/key`, undefined, one.name),
  });
  const remove = () => onAsk({
    question: `Delete ${one.name}?`,
    action: "Delete",
    typed: one.name,
    text: html`<p>Its ${projects.length === 1 ? "project" : `${projects.length} projects`}, with their keys, sessions, recordings and sounds, and the voices of its speakers are deleted. This cannot be undone. Their usage stays in the ledger.</p>`,
    yes: () => act("DELETE", place("organization", one)),
  });
  return html`<section class="card"><h3 class="title">${one.name} <span class="hint"><code>${one.key_shown_as ?? "no key"}</code> made ${when(one.created_at)}</span></h3>
    ${projects.length
      ? html`<${Table} label=${`Projects of ${one.name}`} head=${["Project", "Free a month", html`<span class="unseen">Change</span>`, "Key", "Made"]}>
          ${projects.map((project) => html`<${Project} key=${project.id} project=${project} onAsk=${onAsk} act=${act} />`)}<//>`
      : html`<p class="empty">No project yet. A project has the key that programs use.</p>`}
    <${Name} label=${html`New project <span class="unseen">in ${one.name}</span>`} onMake=${(name) => act("POST", "/admin/v1/projects", { name, organization: one.id })} />
    <p class="actions"><button class="quiet" onClick=${rotate}>New key of ${one.name}…</button><button class="quiet danger" onClick=${remove}>Delete ${one.name}…</button></p></section>`;
}

function Project({ project, onAsk, act }) {
  const [plan, setPlan] = useState(null);
  const rotate = () => onAsk({
    question: `Make a new key of ${project.name}?`,
    action: "Make a new key",
    text: html`<p>The key that its programs use now stops working: here at once, on other nodes within a minute. They cannot begin sessions, send jobs or read lists until they have the new one. Open sessions go on.</p>`,
    yes: () => act("POST", `${place("project", project)}/key`, undefined, project.name),
  });
  const remove = () => onAsk({
    question: `Delete ${project.name}?`,
    action: "Delete",
    typed: project.name,
    text: html`<p>Its key, sessions, recordings and own sounds are deleted: here at once, on other nodes within seconds. This cannot be undone. Its usage stays in the ledger.</p>`,
    yes: () => act("DELETE", place("project", project)),
  });
  const set = (event) => {
    event.preventDefault();
    setPlan(null);
    act("PUT", `${place("project", project)}/plan`, { free_seconds: plan === "" ? null : Number(plan) });
  };
  return html`<tr><th scope="row">${project.name}</th><td>${plan === null
      ? html`${project.free_seconds === null ? "no limit" : lengthInWords(project.free_seconds)} <button class="quiet" aria-label=${`Set the plan of ${project.name}`} onClick=${() => setPlan(project.free_seconds === null ? "" : String(project.free_seconds))}>Set</button>`
      : html`<form class="line" onSubmit=${set}><label>Seconds <input type="number" min="0" max="1000000000000" step="1" value=${plan} placeholder="any" onInput=${(event) => setPlan(event.target.value)} /></label><button>Save</button><button type="button" class="quiet" onClick=${() => setPlan(null)}>Cancel</button></form>`}</td>
    <td><span class="line"><button class="quiet" aria-label=${`New key of ${project.name}`} onClick=${rotate}>New key…</button><button class="quiet danger" aria-label=${`Delete ${project.name}`} onClick=${remove}>Delete…</button></span></td>
    <td><code>${project.key_shown_as ?? "none"}</code></td><td>${when(project.created_at)}</td></tr>`;
}

function Name({ label, onMake }) {
  const [name, setName] = useState("");
  return html`<form class="line" onSubmit=${(event) => { event.preventDefault(); onMake(name.trim()); setName(""); }}>
    <label>${label} <input maxlength="40" required value=${name} onInput=${(event) => setName(event.target.value)} /></label><button disabled=${!name.trim()}>Make</button></form>`;
}

function Usage({ projects }) {
  const [month, setMonth] = useState(new Date().toISOString().slice(0, 7));
  const [project, setProject] = useState("");
  const months = Array.from({ length: 12 }, (_, back) => new Date(Date.UTC(new Date().getUTCFullYear(), new Date().getUTCMonth() - back)).toISOString().slice(0, 7));
  const query = new URLSearchParams({ ...(month && { month }), ...(project && { project }) });
  const { value, error, loading, again } = useLoaded((signal) => get(`/admin/v1/usage?${query}`, { ...operator, signal }), [month, project]);
  return html`<section class="card"><h2>Usage</h2>
    <p class="filters"><label>Month <select value=${month} onChange=${(event) => setMonth(event.target.value)}><option value="">all</option>${months.map((one) => html`<option value=${one}>${one}</option>`)}</select></label>
      <label>Project <select value=${project} onChange=${(event) => setProject(event.target.value)}><option value="">all</option>${projects.map((one) => html`<option value=${one.id}>${one.name}</option>`)}</select></label></p>
    <${Problem} error=${error} again=${again} />
    ${value?.length
      ? html`<${Table} label="Usage" head=${["Month", "Project", "Service", "Jobs or sessions", "Audio", "Models"]}>
          ${value.map((row) => html`<tr><td>${row.month}</td><th scope="row">${row.project}</th><td>${tagName(row.service)}</td><td>${row.jobs}</td><td>${lengthInWords(row.audio_seconds)}</td><td class="wide">${row.models}</td></tr>`)}<//>`
      : loading ? html`<p class="empty" role="status">Loading…</p>` : error ? null : html`<p class="empty">No usage.</p>`}
  </section>`;
}
