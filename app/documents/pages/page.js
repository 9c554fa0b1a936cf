// Shows a document and tries what is in it. All text is set as text, never as HTML; nothing is loaded from elsewhere.
"use strict";

const METHODS = ["get", "post", "put", "patch", "delete"];
const main = /** @type {HTMLElement} */ (document.getElementById("document"));
const keys = /** @type {HTMLFormElement} */ (document.getElementById("keys"));
/** @type {any} */
let shown = null;

// --- the page as a tree ----------------------------------------------------------------------------------------------

function element(name, attributes, ...children) {
  const made = document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) {
    if (key.startsWith("on")) made.addEventListener(key.slice(2), value);
    else if (value !== false && value !== undefined) made.setAttribute(key, value === true ? "" : value);
  }
  made.append(...children.filter((child) => child !== null));
  return made;
}

/** Text with `code` and **weight** in it, and one level of lists: as much of Markdown as the documents have. */
function prose(text) {
  const blocks = [];
  for (const paragraph of text.split("\n\n")) {
    const items = paragraph.split("\n- ");
    if (items.length > 1 || paragraph.startsWith("- ")) {
      blocks.push(element("ul", {}, ...items.map((item) => element("li", {}, ...inline(item.replace(/^- /, ""))))));
    } else blocks.push(element("p", {}, ...inline(paragraph)));
  }
  return blocks;
}

function inline(text) {
  return text.split(/(`[^`]*`|\*\*[^*]*\*\*)/).map((piece) => {
    if (piece.startsWith("`")) return element("code", {}, piece.slice(1, -1));
    return piece.startsWith("**") ? element("b", {}, piece.slice(2, -2)) : piece;
  });
}

function json(value) {
  return element("pre", {}, typeof value === "string" ? value : JSON.stringify(value, null, 1));
}

function rows(head, lines) {
  const row = (cell, cells) => element("tr", {}, ...cells.map((one) => element(cell, {}, ...[one].flat())));
  return element("table", {}, row("th", head), ...lines.map((cells) => row("td", cells)));
}

// --- schemas ---------------------------------------------------------------------------------------------------------

function resolved(schema) {
  if (!schema || !schema.$ref) return schema || {};
  return schema.$ref.slice(2).split("/").reduce((node, name) => node[name], shown);
}

/** A schema in a line. */
function kind(schema) {
  if (schema.$ref) return schema.$ref.split("/").pop();
  if (schema.anyOf) return schema.anyOf.map(kind).join(" or ");
  if (schema.allOf) return schema.allOf.map(kind).join(" and ");
  if (schema.enum) return schema.enum.map((one) => JSON.stringify(one)).join(", ");
  if (schema.type === "array" && !Array.isArray(schema.items)) return `list of ${kind(schema.items || {})}`;
  const bounds = ["minimum", "maximum", "minLength", "maxLength", "pattern", "format"]
    .filter((name) => name in schema).map((name) => `${name} ${schema[name]}`);
  return [schema.type || "any", ...bounds].join(", ");
}

function schemaBlock(schema) {
  const whole = resolved(schema);
  if (Array.isArray(whole.items)) {
    return rows(["place", "field", "type"], whole.items.map((one, place) => [String(place), one.title, kind(one)]));
  }
  if (!whole.properties) return element("p", {}, element("code", {}, kind(schema)));
  const required = whole.required || [];
  return rows(["field", "type", ""], Object.entries(whole.properties).map(([name, one]) => [
    [element("code", {}, name), required.includes(name) ? " required" : ""],
    kind(one),
    inline(one.description || resolved(one).description || ""),
  ]));
}

// --- OpenAPI ---------------------------------------------------------------------------------------------------------

function operationBlock(path, method, operation) {
  const body = element("div", {}, ...prose(operation.description || ""));
  if (operation.security && operation.security.length) {
    body.append(element("p", {}, `Key: ${operation.security.map((one) => Object.keys(one)).join(" or ")}`));
  }
  if (operation.parameters.length) {
    body.append(element("h4", {}, "Parameters"), rows(["name", "in", "type", ""], operation.parameters.map((one) => [
      [element("code", {}, one.name), one.required ? " required" : ""], one.in, kind(one.schema), inline(one.description),
    ])));
  }
  for (const [media, content] of Object.entries(operation.requestBody ? operation.requestBody.content : {})) {
    body.append(element("h4", {}, `Body: ${media}`), schemaBlock(content.schema), ...exampleBlocks(content));
  }
  body.append(element("h4", {}, "Answers"));
  for (const [status, answer] of Object.entries(operation.responses)) body.append(answerBlock(status, answer));
  body.append(element("h4", {}, "Try it"), tryBlock(path, method, operation));
  return element("details", { id: operation.operationId },
    element("summary", {}, element("b", {}, method.toUpperCase()), element("code", {}, path), operation.summary, " ",
      element("span", { class: "origin" }, operation["x-origin"])), body);
}

function exampleBlocks(content) {
  return Object.entries(content.examples || {}).map(([name, example]) =>
    element("details", {}, element("summary", {}, `example: ${name}`), json(example.value)));
}

function answerBlock(status, answer) {
  const inside = [];
  for (const [name, header] of Object.entries(answer.headers || {})) {
    inside.push(element("p", {}, element("code", {}, name), " ", ...inline(header.description)));
  }
  for (const [media, content] of Object.entries(answer.content || {})) {
    inside.push(element("p", {}, element("code", {}, media)));
    for (const one of content.schema.anyOf || [content.schema]) inside.push(schemaBlock(one));
    for (const [name, one] of Object.entries(content["x-events"] || {})) {
      inside.push(element("p", {}, `event ${name}: `, element("code", {}, kind(one))), schemaBlock(one));
    }
    inside.push(...exampleBlocks(content));
  }
  return element("details", {}, element("summary", {}, element("b", {}, status), answer.description), ...inside);
}

function tryBlock(path, method, operation) {
  const form = element("form", {});
  for (const one of operation.parameters) {
    form.append(element("label", {}, `${one.name} (${one.in})`,
      element("input", { name: one.name, placeholder: one.example, required: one.required && one.in === "path" })));
  }
  const [media, content] = Object.entries(operation.requestBody ? operation.requestBody.content : { "": null })[0];
  const example = content && Object.values(content.examples)[0].value;
  if (media === "application/json") {
    const area = element("textarea", { name: "body" });
    area.value = JSON.stringify(example, null, 1);
    form.append(element("label", {}, "Body", area));
  } else if (media) {
    for (const [name, part] of Object.entries(content.schema.properties)) {
      const input = element("input", { name: `part:${name}`, type: part.format === "binary" ? "file" : "text" });
      const value = example[name] ?? "";
      if (input.type === "text") input.value = typeof value === "string" ? value : JSON.stringify(value);
      form.append(element("label", {}, name, input));
    }
  }
  const output = element("div", {});
  form.append(element("button", {}, "Send"), output);
  form.addEventListener("submit", (event) => {
    event.preventDefault();
    send(path, method, operation, new FormData(form), media, output).catch((error) => {
      output.replaceChildren(element("p", { class: "bad" }, String(error)));
    });
  });
  return form;
}

async function send(path, method, operation, given, media, output) {
  const headers = keyHeaders(operation);
  const query = new URLSearchParams();
  let url = path;
  for (const one of operation.parameters) {
    const value = given.get(one.name);
    if (one.in === "path") url = url.replace(`{${one.name}}`, encodeURIComponent(value));
    else if (value) one.in === "query" ? query.set(one.name, value) : headers.set(one.name, value);
  }
  const request = { method: method.toUpperCase(), headers };
  if (media === "application/json") {
    headers.set("Content-Type", media);
    request.body = given.get("body");
  } else if (media) {
    request.body = new FormData();
    // A part without a value is not there.
    for (const [name, value] of given) if (name.startsWith("part:") && value !== "") request.body.set(name.slice(5), value);
  }
  output.replaceChildren(element("p", {}, "…"));
  const answer = await fetch(`.${url}${query.size ? `?${query}` : ""}`, request);
  const text = element("pre", {});
  const seen = [...answer.headers].map(([name, value]) => `${name}: ${value}`).join("\n");
  output.replaceChildren(element("p", { class: answer.ok ? "" : "bad" }, `${answer.status} ${answer.statusText}`), json(seen), text);
  if (!answer.body) return;
  const reader = answer.body.pipeThrough(new TextDecoderStream()).getReader();
  for (let piece = await reader.read(); !piece.done; piece = await reader.read()) text.append(piece.value);
  try {
    text.textContent = JSON.stringify(JSON.parse(text.textContent), null, 1);
  } catch { /* it is no JSON, and shown as it came */ }
}

function keyHeaders(operation) {
  const headers = new Headers();
  for (const name of (operation.security || []).flatMap(Object.keys)) {
    // It is the same key in another header.
    const field = /** @type {HTMLInputElement} */ (keys.elements[name === "projectBearer" ? "projectKey" : name]);
    const key = field.value.trim();
    const scheme = shown.components.securitySchemes[name];
    if (key) headers.set(scheme.name || "Authorization", scheme.type === "http" ? `Bearer ${key}` : key);
  }
  return headers;
}

function showInterface() {
  for (const tag of shown.tags) {
    main.append(element("h2", {}, tag.name), ...prose(tag.description));
    for (const [path, item] of Object.entries(shown.paths)) {
      for (const method of METHODS) {
        if (item[method] && item[method].tags[0] === tag.name) main.append(operationBlock(path, method, item[method]));
      }
    }
  }
  main.append(element("h2", {}, "Limits"), rows(["limit", "value"], Object.entries(shown["x-limits"]).map(([name, value]) =>
    [name, String(value)])));
}

// --- AsyncAPI --------------------------------------------------------------------------------------------------------

function showLog() {
  for (const channel of Object.values(shown.channels)) {
    main.append(element("h2", {}, channel.address), ...prose(channel.description));
    for (const reference of Object.values(channel.messages)) {
      const message = resolved(reference);
      main.append(element("details", {}, element("summary", {}, element("b", {}, message.title), " ", message.summary),
        schemaBlock(message.payload)));
    }
  }
}

// --- which document --------------------------------------------------------------------------------------------------

async function show() {
  const path = location.hash.slice(1) || "openapi.json";
  const known = [.../** @type {NodeListOf<HTMLAnchorElement>} */ (document.querySelectorAll("#documents a"))].some((link) => link.hash === `#${path}`);
  if (!known) return;
  main.replaceChildren(element("p", {}, "…"));
  const answer = await fetch(path);
  shown = await answer.json();
  main.replaceChildren(element("h2", {}, `${shown.info.title} ${shown.info.version}`), ...prose(shown.info.description),
    element("p", {}, element("a", { href: path }, path)));
  shown.openapi ? showInterface() : showLog();
}

window.addEventListener("hashchange", show);
show();
