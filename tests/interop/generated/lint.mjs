// Prints the findings of common linters in documents, a line each: FILE...
import { readFileSync } from "node:fs";
import { Parser } from "@asyncapi/parser";
import { createConfig, lintFromString } from "@redocly/openapi-core";

const config = await createConfig({ extends: ["recommended"] });
for (const file of process.argv.slice(2)) {
  const source = readFileSync(file, "utf8");
  if (file.includes("asyncapi")) {
    for (const one of await new Parser().validate(source)) console.log(one.code, one.message, one.path.join("."));
  } else {
    for (const one of await lintFromString({ source, absoluteRef: file, config })) {
      console.log(one.ruleId, one.message, one.location[0].pointer);
    }
  }
}
