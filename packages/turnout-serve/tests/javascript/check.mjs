// Compute with the JavaScript client what a test asks for on standard input, and print it.
import {readFileSync} from "node:fs";

const {module, plans, trainings, tensors, bodies} = JSON.parse(readFileSync(0, "utf8"));
const turnout = await import(module);
const hex = (bytes) => Buffer.from(bytes).toString("hex");
const values = (array) => Array.from(array, (value) => (typeof value === "bigint" ? String(value) : value));

console.log(JSON.stringify({
  stream: String(turnout.stream("minibatches", "5")),
  plans: plans.map(({sgd, seed, at}) => turnout.minibatches(sgd, seed, at)),
  trainings: await Promise.all(trainings.map(async ({about, params, inputs, targets, at}) => {
    const data = turnout.examples(inputs, targets);
    const {delta, loss, numSteps} = await turnout.train(about, about.input_shape, Float64Array.from(params), data, at);
    return {delta: Array.from(delta), loss, numSteps};
  })),
  encoded: hex(turnout.encode(tensors)),
  decoded: Object.entries(turnout.decode(turnout.encode(tensors))).map(([name, {dtype, shape, values: v}]) => [name, dtype, shape, values(v)]),
  digests: bodies.map((text) => hex(turnout.sha256(Buffer.from(text, "hex")))),
}));
