// What the model in use knows.
import { html, hue, tagName, useState } from "../lib.js";
import { get } from "../api.js";
import { Problem, useLoaded } from "../parts.js";

export default function Models() {
  const { value, error, loading, again } = useLoaded((signal) => get("/tags/official", { signal, as: null }), []);
  const [search, setSearch] = useState("");
  const tags = (Array.isArray(value) ? value : value?.tags ?? []).map((tag) => (typeof tag === "string" ? tag : tag.name));
  const shown = tags.filter((tag) => tagName(tag).toLowerCase().includes(search.toLowerCase()));
  return html`<${Problem} error=${error} again=${again} />
    ${tags.length
      ? html`<label>Find <input type="search" value=${search} onInput=${(event) => setSearch(event.target.value)} /></label>
          <p class="hint" role="status">${shown.length} of ${tags.length} sounds. A sound is reported from its own operating point on, which is shown as 50 %; sensitivity from -2 (more) to 2 (less) moves it.</p>
          <ul class="tags">${shown.map((tag) => html`<li><span class=${`dot ${hue(tag)}`}></span>${tagName(tag)}</li>`)}</ul>`
      : loading ? html`<p class="empty" role="status">Loading…</p>` : null}`;
}
