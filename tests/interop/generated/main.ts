// Streams a file with the generated client and prints the windows: URL KEY FILE.
import { readFileSync } from "node:fs";
import createClient from "openapi-fetch";
import type { components, paths } from "./schema.js";

const CHUNK_BYTES = 256 * 1024;

const [url, key, path] = process.argv.slice(2) as [string, string, string];
const client = createClient<paths>({ baseUrl: url, headers: { "X-Api-Key": key } });
const audio = readFileSync(path);

/** Return the data of an answer that is no error. */
function taken<T>(answer: { data?: T; error?: unknown }): T {
  if (answer.data === undefined) throw new Error(JSON.stringify(answer.error));
  return answer.data;
}

const created = taken(await client.POST("/audio_sessions/", { body: { type: "file", content_type: "audio/flac" } }));
const session = { session_id: created.session_id };
let next = created.chunk_sequence;
for (let start = 0; start < audio.length; start += CHUNK_BYTES) {
  const data = audio.subarray(start, start + CHUNK_BYTES).toString("base64");
  const params = { path: { ...session, chunk_sequence: next } };
  next = taken(await client.PUT("/audio_sessions/{session_id}/chunks/{chunk_sequence}", { params, body: { data } })).chunk_sequence;
}
const again = await client.PUT("/audio_sessions/{session_id}/chunks/{chunk_sequence}", {
  params: { path: { ...session, chunk_sequence: 0 } },
  body: { data: "AAAA" },
});
const error: components["schemas"]["GenericError"] | undefined = again.error;
if (error?.status_code !== 409) throw new Error("a number that was taken was taken again");
await client.PATCH("/audio_sessions/{session_id}", { params: { path: session }, body: { make_readonly: true } });

let token: string | undefined = "";
while (token !== undefined) {
  const params: { path: typeof session; query: { next_token: string } } = { path: session, query: { next_token: token } };
  const status = taken(await client.GET("/audio_sessions/{session_id}/status", { params }));
  for (const event of status.inference.results) console.log(event.start_time, event.end_time, event.tags[0]!.name);
  token = status.inference.page.next_token;
}
const deleted = await client.DELETE("/audio_sessions/{session_id}", { params: { path: session } });
if (deleted.response.status !== 204) throw new Error("it was not deleted");
