// Where alarms are sent: phones by ntfy, webhooks, brokers of MQTT.
import { html, useState } from "./lib.js";
import { request } from "./api.js";
import { labelsOf } from "./heard.js";
import { Once, Problem, State, Sure } from "./parts.js";
import { Pairs } from "./rule-form.js";

const KINDS = {
  ntfy: { label: "a phone, by ntfy", scheme: "https", place: "ntfy.sh/a-topic-that-nobody-guesses", hint: "Install the app of ntfy, and subscribe to the same topic. Whoever knows the topic gets the alarms.", options: "priority=5" },
  webhook: { label: "a program, by a webhook", scheme: "https", place: "example.org/alarms", hint: "Messages are signed as Standard Webhooks says. The secret is shown once.", options: null },
  mqtt: { label: "Home Assistant or others, by MQTT", scheme: "mqtts", place: "broker.example.org", hint: "Home Assistant finds the alarms by itself.", options: "base=earshot" },
};

export function Destinations({ loaded, onChange }) {
  const [fresh, setFresh] = useState(null);
  const [adding, setAdding] = useState(false);
  const list = loaded.value?.destinations ?? [];
  const added = ({ destination, secret }) => {
    setAdding(false);
    if (secret) setFresh({ name: destination.name, secret });
    onChange();
  };
  return html`<section><h2>Destinations</h2>
    ${fresh ? html`<${Once} thing="secret" what=${fresh.name} value=${fresh.secret} onDone=${() => setFresh(null)} />` : null}
    ${list.map((one) => html`<${Destination} key=${one.id} destination=${one} onChange=${onChange} onSecret=${(secret) => setFresh({ name: one.name, secret })} />`)}
    ${list.length || loaded.error ? null : html`<p class="empty" role="status">${loaded.loading ? "Loading…" : "Alarms are sent nowhere yet."}</p>`}
    ${adding ? html`<${New} onDone=${added} onCancel=${() => setAdding(false)} />` : html`<p><button onClick=${() => setAdding(true)}>Add a destination</button></p>`}
  </section>`;
}

function Destination({ destination: one, onChange, onSecret }) {
  const [state, set] = useState({});
  const [sure, setSure] = useState("");
  const path = `/api/v1/destinations/${one.id}`;
  const act = async (method, tail, body, done) => {
    set({ busy: true });
    setSure("");
    try {
      const answer = await request(method, path + tail, { body });
      set({});
      done(answer.status === 204 ? null : await answer.json());
    } catch (error) {
      set({ error });
    }
  };
  const { name, url, user, options, enabled } = one;
  const { sent } = state;
  return html`<div class="card"><h3>${name} <span class="hint">${one.kind}${enabled ? "" : ", off"}</span></h3>
    <p class="name">${url}${user ? ` as ${user}` : ""}${one.has_password ? ", with a password or token" : ""}${Object.keys(options).length ? `, ${labelsOf(options)}` : ""}</p>
    ${one.fault ? html`<p class="problem">Switched off: ${one.fault}</p>` : null}
    ${sent ? html`<p role="status">${sent.state === "delivered" ? html`<${State} state="good">The test message was delivered.<//>` : html`<${State} state="bad">The test message was not delivered: ${sent.error ?? `the status was ${sent.status}`}<//>`}</p>` : null}
    <${Problem} error=${state.error} />
    <p class="actions"><button disabled=${state.busy} aria-label=${`Send a test message to ${name}`} onClick=${() => act("POST", "/test", undefined, (value) => set({ sent: value }))}>${state.busy ? "Wait…" : "Send a test"}</button>
      ${one.kind === "webhook" ? html`<button aria-label=${`Make a new secret of ${name}`} onClick=${() => setSure("secret")}>New secret…</button>` : null}
      <button aria-label=${`${enabled ? "Switch off" : "Switch on"} ${name}`} onClick=${() => act("PUT", "", { name, url, user, options, enabled: !enabled }, onChange)}>${enabled ? "Switch off" : "Switch on"}</button>
      <button class="danger" aria-label=${`Delete ${name}`} onClick=${() => setSure("delete")}>Delete…</button></p>
    ${sure === "delete" ? html`<${Sure} question=${`Delete ${name}?`} action="Delete" onYes=${() => act("DELETE", "", undefined, onChange)} onNo=${() => setSure("")}><p>Alarms that wait for it are not sent.</p><//>` : null}
    ${sure === "secret" ? html`<${Sure} question=${`Make a new secret of ${name}?`} action="Make a new secret" onYes=${() => act("POST", "/secret", undefined, (value) => onSecret(value.secret))} onNo=${() => setSure("")}><p>The old one signs too for 24 hours.</p><//>` : null}
  </div>`;
}

function New({ onDone, onCancel }) {
  const [kind, setKind] = useState("ntfy");
  const [options, setOptions] = useState({});
  const [error, setError] = useState(null);
  const add = async (event) => {
    event.preventDefault();
    setError(null);
    const given = Object.fromEntries(new FormData(event.target));
    const body = { kind, name: given.name, url: given.url, user: given.user || null, password: given.password || null, options: KINDS[kind].options ? options : {} };
    try {
      onDone(await (await request("POST", "/api/v1/destinations", { body })).json());
    } catch (problem) {
      setError(problem);
    }
  };
  return html`<form class="card" onSubmit=${add} aria-label="New destination">
    <p class="filters"><label>Send to <select value=${kind} onChange=${(event) => setKind(event.target.value)}>${Object.entries(KINDS).map(([name, one]) => html`<option value=${name}>${one.label}</option>`)}</select></label>
      <label>Name <input name="name" required maxlength="60" placeholder="phone" /></label></p>
    <p><label class="long">Address <input name="url" required maxlength="2000" placeholder=${`${KINDS[kind].scheme}://${KINDS[kind].place}`} aria-describedby="kind-hint" /></label></p>
    <p class="hint" id="kind-hint">${KINDS[kind].hint}</p>
    <p class="filters"><label>User <input name="user" maxlength="200" autocomplete="off" placeholder="none" /></label>
      <label>Password or token <input name="password" type="password" autocomplete="off" maxlength="2000" /></label>
      ${KINDS[kind].options ? html`<${Pairs} key=${kind} label="Options" example=${KINDS[kind].options} pairs=${{}} onChange=${setOptions} />` : null}</p>
    <${Problem} error=${error} />
    <p class="actions"><button class="main">Add</button> <button type="button" onClick=${onCancel}>Cancel</button></p>
  </form>`;
}
