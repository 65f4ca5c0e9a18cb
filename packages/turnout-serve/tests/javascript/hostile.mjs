// Let the JavaScript client work for hostile servers: node hostile.mjs MODULE prints a JSON object of what it did.
const {Client, examples, encode, sha256} = await import(process.argv[2]);
const hex = (bytes) => Buffer.from(bytes).toString("hex"), escapes = "\x1b]0;owned\x07\x9b2J";
const scalar = (dtype) => [dtype, [1]];
const report = {num_examples: scalar("I64"), num_steps: scalar("I64"), delta: ["F64", [4]], "seen.loss": scalar("F64")};
const sgd = { // so many steps that a heartbeat is due several times before they end
  steps: 400_000, epochs: null, batch_size: 1, sampling: "replacement", drop_last: false, lr: 0.1, momentum: 0, weight_decay: 0,
};
const layers = [{kind: "linear", inputs: 2, outputs: 2, bias: false}];
const about = {protocol: 2, input_shape: [2], num_classes: 2, training: {layers, loss: "cross_entropy", seed: "1", sgd, report}};
const model = encode({params: ["F64", [4], [0, 0, 0, 0]]});

/** Return how a client ends with a server that gives these answers by path. */
async function outcome(answers) {
  const standard = {
    "/v1/run": () => about,
    "/v1/enrol": () => ({client: 0, run: "r"}),
    "/v1/models": () => answers.model ?? model,
    "/v1/leave": () => ({}),
  };
  globalThis.fetch = async (url) => {
    const path = new URL(url).pathname, part = path.endsWith("/heartbeat") ? "heartbeat" : path.split("/", 3).join("/");
    const answer = await (answers[part] ?? standard[part])();
    if (answer instanceof Response) return answer;
    return answer instanceof Uint8Array ? new Response(answer) : Response.json(answer);
  };
  const client = new Client("http://hostile", examples([[1, 2], [3, 4]], [0, 1]), {backoff: 0.001, longest: 0.001});
  return client.run().catch((error) => `${error.constructor.name}: ${error.message}`);
}

/** Return answers with one task, then the end of the run. */
function working(body) {
  let asked = 0;
  const task = {
    task: 1, version: 0, phase: "train", repeat: 0, model: hex(sha256(body)), size: body.length, heartbeat: 0.1,
    fingerprint: "0".repeat(32), told: {},
  };
  return {model: body, "/v1/checkin": () => (asked++ ? {over: `over${escapes}`} : {task}), "/v1/tasks": () => ({state: "taken"})};
}

const found = {};
found.protocol = await outcome({"/v1/run": () => ({...about, protocol: escapes})});
found.description = await outcome({"/v1/run": () => ({...about, training: {...about.training, report: null}})});
found.layers = await outcome({"/v1/run": () => ({...about, training: {...about.training, layers: [{kind: "conv2d"}]}})});
found.model = await outcome(working(Uint8Array.from([3, 0, 0, 0, 0, 0, 0, 0, 1, 2, 3])));
const tensors = new TextEncoder().encode('{"params":{"dtype":"F64"}}');
found.tensors = await outcome(working(Uint8Array.from([tensors.length, 0, 0, 0, 0, 0, 0, 0, ...tensors])));

// A report that a proxy answers at first.
let reports = 0;
found.proxy = await outcome({...working(model), "/v1/tasks": () => (reports++ ? {state: "taken"} : {hello: "proxy"})});
found.reports = reports;

// The login page of a network in place of an answer: a text, with the status of success.
let asked = 0;
found.page = await outcome({...working(model), "/v1/run": () => (asked++ ? about : new Response("<html>"))});

// Heartbeats: an answer that is too long, answers that never come, and a clock that is set back an hour at every look.
let beats = 0, now = 1e15;
Date.now = () => (now -= 3_600_000);
found.long = await outcome({...working(model), heartbeat: () => (beats++, {padding: "x".repeat(5000)})});
found.beats = beats;
beats = 0;
found.silent = await outcome({...working(model), heartbeat: () => (beats++, new Promise(() => {}))});
found.open = beats;

// A model that is gone.
let pauses = 0;
const {pause} = Client.prototype;
Client.prototype.pause = function count(length) {
  pauses++;
  return pause.call(this, length);
};
found.gone = await outcome({...working(model), "/v1/models": () => new Response('{"reason": "gone"}', {status: 404})});
found.pauses = pauses;
console.log(JSON.stringify(found));
process.exit();
