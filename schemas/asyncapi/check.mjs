// Says all that AsyncAPI's parser has to say of a document, be it errors, warnings or hints, and, as the parser leaves these
// alone, which examples do not fit their schema. Exits 1 if there is anything.
import { readFile } from "node:fs/promises";
import { Parser } from "@asyncapi/parser";
import Ajv from "ajv";

const [path] = process.argv.slice(2);
const text = await readFile(path, "utf8");
const said = (await new Parser().validate(text)).map(
  ({ code, message, path: where }) => `${where.join(".")}: ${message} (${code})`,
);

const whole = JSON.parse(text);
const ajv = new Ajv({ strict: false, formats: { int64: true } }).addSchema(whole, "document");
for (const [name, message] of Object.entries(whole.components.messages)) {
  const fits = ajv.compile({ $ref: `document${message.payload.$ref}` });
  for (const example of message.examples) {
    if (!fits(example.payload)) said.push(`example of ${name}: ${ajv.errorsText(fits.errors)}`);
  }
}

for (const line of said) console.log(line);
process.exit(said.length > 0 ? 1 : 0);
