// The frame: who is signed in, which view the address names, and what went wrong.
import { Component, html, render, useEffect, useRef, useState } from "./lib.js";
import { RETRY, key, onKeys, request, setKey } from "./api.js";
import { Problem } from "./problem.js";
import { shareKeys, signOutEverywhere } from "./tabs.js";

const VIEWS = {
  try: { title: "Try it", load: () => import("./views/try.js"), needs: "project" },
  jobs: { title: "Recordings", load: () => import("./views/jobs.js"), needs: "project" },
  live: { title: "Live", load: () => import("./views/live.js"), needs: "project" },
  alarms: { title: "Alarms", load: () => import("./views/alarms.js"), needs: "project" },
  speakers: { title: "Speakers", load: () => import("./views/speakers.js"), needs: "organization" },
  project: { title: "Key and usage", load: () => import("./views/project.js"), needs: "project" },
  own: { title: "Own sounds", load: () => import("./views/own.js"), needs: "project" },
  models: { title: "Models", load: () => import("./views/models.js"), needs: null },
  operator: { title: "Operator", load: () => import("./views/operator.js"), needs: "operator" },
};

const NO_PAGE = "There is no such page";

/** `#/jobs/ID?t=12` as {view, rest, query}; the view of a broken address is "". */
function place() {
  const [path, query] = location.hash.replace(/^#\/?/, "").split("?");
  try {
    const [view, ...rest] = (path || "try").split("/").map(decodeURIComponent);
    return { view, rest, query: new URLSearchParams(query ?? "") };
  } catch {
    return { view: "", rest: [], query: new URLSearchParams() };
  }
}

function usePlace() {
  const [now, set] = useState(place);
  useEffect(() => {
    const changed = () => set(place());
    addEventListener("hashchange", changed);
    changed(); // The address may have changed since it was first read.
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
  const known = Object.hasOwn(VIEWS, view) ? VIEWS[view] : null;
  const title = known?.title ?? (["welcome", "sign-in"].includes(view) ? "Welcome" : NO_PAGE);
  const [, redraw] = useState(0);
  const heading = useRef(null);
  useEffect(() => {
    const stop = onKeys(() => redraw((count) => count + 1));
    shareKeys();
    return stop;
  }, []);
  const allowed = known && (known.needs === null || key(known.needs));
  // Also when a key comes or goes, and with it the form in which the focus was.
  useEffect(() => {
    document.title = `${title} · Earshot`;
    heading.current?.focus();
  }, [view, rest[0], Boolean(allowed)]);
  const anyKey = ["project", "organization", "operator"].some(key);
  let page;
  if (view === "welcome") page = html`<${Welcome} token=${rest[0]} />`;
  else if (view === "sign-in" || (known && !allowed)) page = html`<${Lazy} key=${`sign-in ${view}`} load=${() => import("./views/sign-in.js")} name="sign-in" title=${known?.title} needs=${known?.needs} />`;
  else if (known) page = html`<${Lazy} key=${view} load=${known.load} name=${view} rest=${rest} query=${query} />`;
  else page = html`<p class="empty"><a href="#/try">Go to Try it</a></p>`;
  return html`
    <header class="bar">
      <a class="brand" href="#/try">Earshot</a>
      <nav aria-label="Views">
        ${Object.entries(VIEWS).map(([name, one]) => html`<a href=${`#/${name}`} aria-current=${name === view ? "page" : null}>${one.title}</a>`)}
      </nav>
      ${anyKey
        ? html`<button class="quiet" onClick=${() => { signOutEverywhere(); location.hash = "#/sign-in"; }}>Sign out</button>`
        : html`<a href="#/sign-in">Sign in</a>`}
    </header>
    <main id="main" tabindex="-1">
      <h1 tabindex="-1" ref=${heading}>${title}</h1>
      <${Boundary} key=${`${view}/${rest[0]}`}>${page}<//>
    </main>`;
}

/** Shows a fault of a view in its place; the rest of the page goes on. */
class Boundary extends Component {
  componentDidCatch(error) {
    console.error(error);
    this.setState({ error });
  }

  render({ children }, { error }) {
    if (!error) return children;
    return html`<${Problem} error=${new Error(`This page has a fault: ${error.message}`)} again=${() => this.setState({ error: null })} />`;
  }
}

/** A view whose code is fetched when it is first looked at, and again until it comes. */
function Lazy({ load, name, ...props }) {
  const [made, set] = useState({});
  const [turn, setTurn] = useState(0);
  // Some browsers remember that a script could not be fetched until the page is loaded anew.
  const reload = () => fetch("icon.svg", { cache: "no-store" }).then(() => location.reload(), () => {});
  useEffect(() => {
    let gone = false;
    let timer;
    load().then(
      (module) => gone || set({ name, View: module.default }),
      (error) => {
        if (gone) return;
        set({ name, error });
        timer = setTimeout(() => setTurn((count) => count + 1), RETRY);
      },
    );
    return () => {
      gone = true;
      clearTimeout(timer);
    };
  }, [name, turn]);
  if (made.error) return html`<${Problem} error=${made.error} again=${reload} />`;
  if (made.name !== name) return html`<p class="empty" role="status">Loading…</p>`;
  return html`<${made.View} ...${props} />`;
}

// The address is a view's, so that a link to a part of the page would leave the view.
document.querySelector(".skip")?.addEventListener("click", (event) => {
  event.preventDefault();
  document.getElementById("main")?.focus();
});
const root = /** @type {HTMLElement} */ (document.getElementById("app"));
root.replaceChildren();
render(html`<${App} />`, root);
