// The frame: who is signed in, which view the address names, and what went wrong.
import { html, render, useEffect, useRef, useState } from "./lib.js";
import { key, onKeys, request, setKey, signOut } from "./api.js";
import { Problem } from "./parts.js";

const VIEWS = {
  try: { title: "Try it", load: () => import("./views/try.js"), needs: "project" },
  jobs: { title: "Recordings", load: () => import("./views/jobs.js"), needs: "project" },
  live: { title: "Live", load: () => import("./views/live.js"), needs: "project" },
  speakers: { title: "Speakers", load: () => import("./views/speakers.js"), needs: "organization" },
  project: { title: "Key and usage", load: () => import("./views/project.js"), needs: "project" },
  models: { title: "Models", load: () => import("./views/models.js"), needs: null },
  operator: { title: "Operator", load: () => import("./views/operator.js"), needs: "operator" },
};

/** `#/jobs/ID?t=12` as {view, rest, query}. */
function place() {
  const [path, query] = location.hash.replace(/^#\/?/, "").split("?");
  const [view, ...rest] = path.split("/").map(decodeURIComponent);
  return { view: view || "try", rest, query: new URLSearchParams(query ?? "") };
}

function usePlace() {
  const [now, set] = useState(place);
  useEffect(() => {
    const changed = () => set(place());
    addEventListener("hashchange", changed);
    return () => removeEventListener("hashchange", changed);
  }, []);
  return now;
}

/** Trade the token of a link for passes, once. */
function Welcome({ token }) {
  const [error, setError] = useState(null);
  useEffect(() => {
    request("POST", "/dashboard/sign-in", { as: null, body: { token } })
      .then((answer) => answer.json())
      .then((passes) => {
        setKey("project", passes.project);
        setKey("organization", passes.organization);
        location.replace("#/try");
      })
      .catch(setError);
  }, [token]);
  if (!error) return html`<p class="empty" role="status">Signing in…</p>`;
  return html`<${Problem} error=${error} /><p>The command <code>earshot link</code> prints a new link. Or <a href="#/sign-in">sign in with a key</a>.</p>`;
}

function App() {
  const { view, rest, query } = usePlace();
  const [, redraw] = useState(0);
  const heading = useRef(null);
  useEffect(() => onKeys(() => redraw((count) => count + 1)), []);
  useEffect(() => {
    document.title = `${VIEWS[view]?.title ?? "Sign in"} · Earshot`;
    heading.current?.focus();
  }, [view, rest[0]]);
  const known = VIEWS[view];
  const allowed = known && (known.needs === null || key(known.needs));
  const anyKey = ["project", "organization", "operator"].some(key);
  let page;
  if (view === "welcome") page = html`<${Welcome} token=${rest[0]} />`;
  else if (view === "sign-in" || (known && !allowed)) page = html`<${Lazy} key=${`sign-in ${view}`} load=${() => import("./views/sign-in.js")} name="sign-in" title=${known?.title} needs=${known?.needs} back=${location.hash} />`;
  else if (known) page = html`<${Lazy} key=${view} load=${known.load} name=${view} rest=${rest} query=${query} />`;
  else page = html`<p class="empty">There is no such page. <a href="#/try">Try it</a></p>`;
  return html`
    <header class="bar">
      <a class="brand" href="#/try">Earshot</a>
      <nav aria-label="Views">
        ${Object.entries(VIEWS).map(([name, one]) => html`<a href=${`#/${name}`} aria-current=${name === view ? "page" : null}>${one.title}</a>`)}
      </nav>
      ${anyKey
        ? html`<button class="quiet" onClick=${() => { signOut(); location.hash = "#/sign-in"; }}>Sign out</button>`
        : html`<a href="#/sign-in">Sign in</a>`}
    </header>
    <main id="main">
      <h1 tabindex="-1" ref=${heading}>${view === "welcome" || !known ? "Welcome" : known.title}</h1>
      ${page}
    </main>`;
}

/** A view whose code is fetched when it is first looked at. */
function Lazy({ load, name, ...props }) {
  const [made, set] = useState({});
  useEffect(() => {
    let gone = false;
    load().then(
      (module) => gone || set({ name, View: module.default }),
      (error) => gone || set({ name, error }),
    );
    return () => { gone = true; };
  }, [name]);
  if (made.error) return html`<${Problem} error=${made.error} />`;
  if (made.name !== name) return html`<p class="empty" role="status">Loading…</p>`;
  return html`<${made.View} ...${props} />`;
}

const root = document.getElementById("app");
root.replaceChildren();
render(html`<${App} />`, root);
