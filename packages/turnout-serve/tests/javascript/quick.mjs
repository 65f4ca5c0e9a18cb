// The JavaScript client with short pauses: node quick.mjs MODULE URL DATA STATE.
import {readFileSync} from "node:fs";

const [, , module, url, file, state] = process.argv;
const {Client, FileStore, examples} = await import(module);
const {inputs, targets} = JSON.parse(readFileSync(file, "utf8"));
const client = new Client(url, examples(inputs, targets), {store: new FileStore(state), backoff: 0.02, longest: 0.1});
try {
  console.log(await client.run());
} catch (error) {
  console.error(error.message);
  process.exit(1);
}
