// Run by node: OpenAI's JavaScript client on one file. Arguments: folder of the package, base URL, key, audio file.
import fs from "node:fs";
import { createRequire } from "node:module";

const [folder, url, key, path] = process.argv.slice(2);
const { default: OpenAI } = createRequire(`${folder}/`)("openai");
const client = new OpenAI({ baseURL: `${url}/v1`, apiKey: key });

const file = () => fs.createReadStream(path);
const transcribed = (fields = {}) =>
  client.audio.transcriptions.create({ file: file(), model: "whisper-1", ...fields });

async function refused(call) {
  try {
    await call();
    return null;
  } catch (error) {
    return [error.constructor.name, error.status, error.code, error.param];
  }
}

async function collected(stream) {
  const events = [];
  for await (const event of await stream) events.push(event);
  return events;
}

const other = new OpenAI({ baseURL: `${url}/v1`, apiKey: "wrong", maxRetries: 0 });
const value = {
  json: await transcribed(),
  text: await transcribed({ response_format: "text" }),
  srt: await transcribed({ response_format: "srt" }),
  verbose_json: await transcribed({
    response_format: "verbose_json",
    timestamp_granularities: ["word", "segment"],
  }),
  diarized_json: await transcribed({ response_format: "diarized_json", chunking_strategy: "auto" }),
  events: await collected(transcribed({ stream: true })),
  translation: await client.audio.translations.create({ file: file(), model: "whisper-1" }),
  "wrong key": await refused(() => other.audio.transcriptions.create({ file: file(), model: "whisper-1" })),
  "wrong model": await refused(() => transcribed({ model: "gpt-9" })),
};
console.log(JSON.stringify(value));
