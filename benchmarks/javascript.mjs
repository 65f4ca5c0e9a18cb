// Clients in one process of Node: node javascript.mjs MODULE URL DATA.json FREE, where DATA holds the examples of each.
import {readFileSync} from "node:fs";

const [, , module, url, file, free] = process.argv;
const {Client, examples} = await import(module);
const clients = JSON.parse(readFileSync(file, "utf8")).map(({inputs, targets}) => {
  return new Client(url, examples(inputs, targets), {name: "node", free: free === "free"});
});
const runs = [];
for (const client of clients) { // one after the other, so that the server numbers them as the data do
  await new Promise((enrolled, failed) => {
    client.options.report = ({event}) => { if (event === "enrolled") enrolled(); };
    runs.push(client.run());
    runs.at(-1).catch(failed);
  });
}
await Promise.all(runs);
console.log(clients.reduce((sum, client) => sum + client.taken, 0));
