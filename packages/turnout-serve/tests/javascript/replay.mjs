// Hold the JavaScript client against test vectors: node replay.mjs MODULE DIR prints how many there are, or fails.
import {readFileSync} from "node:fs";
import {join} from "node:path";
import assert from "node:assert/strict";

const [, , module, folder] = process.argv;
const turnout = await import(module);
const read = (name) => JSON.parse(readFileSync(join(folder, name), "utf8"));
let count = 0;

const random = read("random.json");
for (const {text, integers, key} of random.stream) {
  assert.equal(String(turnout.stream(text, ...integers)), key);
  count++;
}
for (const {key, integers, bits} of random.fold) {
  assert.equal(String(turnout.fold(BigInt(key), ...integers)), bits);
  count++;
}
for (const {bits, limit, value} of random.below) {
  assert.equal(turnout.below(BigInt(bits), limit), value);
  count++;
}
for (const [name, vector] of Object.entries(read("training.json"))) {
  const {run, params, inputs, targets, at: {client, version, repeat, steps_done: stepsDone}} = vector;
  const at = {client, version, repeat, stepsDone};
  const numExamples = targets.length, {sgd, seed} = run.training;
  assert.deepEqual(turnout.minibatches(sgd, seed, {...at, numExamples}), vector.minibatches, name);
  const data = turnout.examples(inputs, targets);
  const done = await turnout.train(run.training, run.input_shape, Float64Array.from(params), data, at);
  assert.equal(done.numSteps, vector.num_steps);
  assert.ok(Math.abs(done.loss - vector.loss) < 1e-9, name);
  vector.delta.forEach((value, i) => assert.ok(Math.abs(value - done.delta[i]) < 1e-9, name));
  count++;
}
for (const {request, answer} of read("exchanges.json")) {
  if (!answer.base64 || answer.status !== 200) continue;
  const body = Buffer.from(answer.base64, "base64");
  const digest = Buffer.from(turnout.sha256(body)).toString("hex");
  assert.equal(request.path, `/v1/models/${digest}`);
  assert.ok(turnout.decode(body).params.values.length > 0);
  count++;
}
console.log(count);
