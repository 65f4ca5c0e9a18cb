// Run the script of the status page without a browser: page.mjs FOLDER STATUS, where the folder has page.html and answers.json.
import fs from "node:fs";
import vm from "node:vm";

const [folder, status] = [process.argv[2], Number(process.argv[3])];
const answers = JSON.parse(fs.readFileSync(`${folder}/answers.json`, "utf8"));
const script = /<script>([\s\S]*)<\/script>/.exec(fs.readFileSync(`${folder}/page.html`, "utf8"))[1];

class Element {
  constructor() { this.children = []; this.hidden = true; this.textContent = ""; }
  append(...more) { this.children.push(...more); }
  replaceChildren(...more) { this.children = more; }
  setAttribute() {}
  addEventListener() {}
}
const elements = {}, calls = [], stored = {};
const seen = {address: "/#token=given"};
const context = vm.createContext({
  document: {
    createElement: () => new Element(), createElementNS: () => new Element(),
    getElementById: (id) => elements[id] ??= new Element(),
  },
  location: {hash: "#token=given", host: "server:8470", pathname: "/", search: ""},
  history: {replaceState: (_, __, address) => { seen.address = address; }},
  sessionStorage: {
    setItem: (key, value) => { stored[key] = value; }, getItem: (key) => stored[key] ?? null,
    removeItem: (key) => { delete stored[key]; },
  },
  fetch: async (path, {headers}) => {
    calls.push({path, ...headers});
    const body = path.includes("clients") ? answers.clients : status === 200 ? answers.status : {reason: "no"};
    return {ok: status === 200, status, json: async () => body};
  },
  setTimeout: () => {},
});
vm.runInContext(script, context);
await new Promise((resolve) => setTimeout(resolve, 50));
const numbers = Array.from({length: 30}, (_, i) => i);
const range = (values) => [...vm.runInContext(`range(${JSON.stringify(values)})`, context)];
console.log(JSON.stringify({
  ...seen, calls, stored: Object.values(stored)[0] ?? null, asks: !elements.access?.hidden, run: elements.run?.textContent,
  rows: elements.clients?.children.length ?? 0,
  plain: range(numbers), outlier: range([...numbers, 1e6]), jump: range([0, 1, 1, 1]),
}));
