/**
 * A client of a turnout federation without dependencies, for Node (20 or newer) and for browsers.
 *
 *     node turnout.js http://127.0.0.1:8470 --data examples.json --state client.json
 *
 *     import {Client, examples} from "./turnout.js";
 *     const reason = await new Client("http://127.0.0.1:8470", examples(inputs, targets)).run();
 *
 * The client enrolls, asks for work, trains by minibatch SGD on examples that never leave it, and reports the change of the
 * parameters. The protocol is described in docs/protocol.md. All arithmetic is float64.
 */

export const PROTOCOL = 2;
const MOST_JSON = 16 << 20; // bytes of an answer that is no model
const MOST_SECONDS = 3600; // the longest pause that a server can ask for
const JSON_BODY = {"content-type": "application/json"};
const RUN = /^[A-Za-z0-9_-]{1,64}$/;

/** The server and this client cannot work together; the message says why. */
export class JoinError extends Error {
  constructor(message) { super(printable(message)); }
}

/** Return text from anyone for a terminal: without control characters, and truncated. */
const printable = (text, most = 2000) => String(text).slice(0, most).replace(/\p{C}/gu, "?");

/** Compute something from what the server sent; errors say that it cannot be used. */
function read(what, compute) {
  try {
    return compute();
  } catch (error) {
    throw error instanceof JoinError ? error : new JoinError(`${what} cannot be used: ${error.message}`);
  }
}

// Random numbers: pure functions of integers, as 64-bit unsigned BigInt.

const MASK = (1n << 64n) - 1n;
const GOLDEN = 0x9e3779b97f4a7c15n;

/** Scramble a 64-bit integer (the finalizer of SplitMix64). */
export function mix(state) {
  state = ((state ^ (state >> 30n)) * 0xbf58476d1ce4e5b9n) & MASK;
  state = ((state ^ (state >> 27n)) * 0x94d049bb133111ebn) & MASK;
  return state ^ (state >> 31n);
}

/** Return the key of a purpose and of integers such as the seed. */
export function stream(purpose, ...parts) {
  let key = BigInt(crc32(purpose));
  for (const part of parts) key = mix((key + BigInt(part) + GOLDEN) & MASK);
  return mix(key);
}

/** Fold integers into a key, one after the other. */
export function fold(key, ...parts) {
  for (const part of parts) key = mix((BigInt.asUintN(64, BigInt(part)) * GOLDEN + key) & MASK);
  return key;
}

/** Turn 64 random bits into an integer of {0, ..., limit - 1}. */
export function below(bits, limit) {
  return Number((((bits >> 31n) & 0xffffffffn) * BigInt(limit)) >> 32n);
}

function crc32(text) {
  let crc = ~0;
  for (const byte of new TextEncoder().encode(text)) {
    crc ^= byte;
    for (let bit = 0; bit < 8; bit++) crc = (crc >>> 1) ^ (crc & 1 ? 0xedb88320 : 0);
  }
  return ~crc >>> 0;
}

/**
 * Draw the minibatches of one task.
 *
 * @param sgd description of the local steps: steps, epochs, batch_size, sampling, drop_last
 * @param {string|number|bigint} seed of the run
 * @param {{client: number, version: number, repeat: number, stepsDone: number, numExamples: number}} at
 * @returns {number[][]} the positions of the examples of each minibatch
 */
export function minibatches(sgd, seed, {client, version, repeat = 0, stepsDone = 0, numExamples}) {
  const size = sgd.batch_size;
  const inPass = sgd.drop_last ? Math.max(1, Math.floor(numExamples / size)) : Math.ceil(numExamples / size);
  const numSteps = sgd.epochs === null ? sgd.steps : sgd.epochs * inPass;
  const draw = BigInt(version) + (BigInt(repeat) << 40n);
  const key = stream("minibatches", seed);
  if (sgd.sampling === "replacement") {
    const own = fold(key, draw, client);
    return Array.from({length: numSteps}, (_, step) =>
      Array.from({length: size}, (_, i) => below(fold(own, step * size + i), numExamples)));
  }
  const own = sgd.sampling === "pass" ? fold(key, client) : fold(key, draw, client);
  const first = sgd.sampling === "pass" ? stepsDone : 0;
  let found = [], number = -1, order = [];
  for (let step = first; step < first + numSteps; step++) {
    const batch = step % inPass;
    if (Math.floor(step / inPass) !== number) {
      number = Math.floor(step / inPass);
      order = shuffled(fold(own, number), numExamples);
    }
    found.push(order.slice(batch * size, (batch + 1) * size));
  }
  return found;
}

/** Return 0, ..., n - 1 sorted by 26 random bits each, ties by position. */
function shuffled(key, n) {
  const ranks = Float64Array.from({length: n}, (_, i) => Number(fold(key, i) >> 38n));
  return Array.from(ranks.keys()).sort((a, b) => ranks[a] - ranks[b] || a - b);
}

// Messages: safetensors, named by their SHA-256. Pages without TLS have no crypto.subtle.

const ARRAYS = {
  F64: Float64Array, F32: Float32Array, I64: BigInt64Array, I32: Int32Array, I16: Int16Array, I8: Int8Array, U8: Uint8Array,
};

/** Write tensors, {name: [dtype, shape, values]}, as safetensors. */
export function encode(tensors) {
  const width = (name) => ARRAYS[tensors[name][0]].BYTES_PER_ELEMENT;
  const names = Object.keys(tensors).sort((a, b) => width(b) - width(a) || (a < b ? -1 : 1)); // so that all are aligned
  let header = {}, parts = [], end = 0;
  for (const name of names) {
    const [dtype, shape, values] = tensors[name];
    const array = ARRAYS[dtype].from(values);
    header[name] = {dtype, shape, data_offsets: [end, end + array.byteLength]};
    end += array.byteLength;
    parts.push(new Uint8Array(array.buffer));
  }
  let text = JSON.stringify(header);
  text += " ".repeat((8 - (text.length % 8)) % 8);
  const length = new Uint8Array(BigUint64Array.of(BigInt(text.length)).buffer);
  return joined([length, new TextEncoder().encode(text), ...parts]);
}

/** Read safetensors: {name: {dtype, shape, values}}. */
export function decode(body) {
  const length = body.length < 8 ? -1 : Number(new DataView(body.buffer, body.byteOffset).getBigUint64(0, true));
  if (length < 0 || length > body.length - 8) throw new JoinError("the model is no safetensors file");
  const header = tableOf(body.subarray(8, 8 + length));
  delete header.__metadata__;
  const found = {};
  for (const [name, {dtype, shape, data_offsets: [begin, end]}] of Object.entries(header)) {
    const kind = ARRAYS[dtype], size = shape.reduce((a, b) => a * b, 1);
    if (!kind) throw new JoinError(`the model holds ${dtype}, which this client cannot read`);
    const bytes = body.slice(8 + length + begin, 8 + length + end);
    if (bytes.length !== size * kind.BYTES_PER_ELEMENT) throw new JoinError(`${name} has not the size of its shape`);
    found[name] = {dtype, shape, values: new kind(bytes.buffer)};
  }
  return found;
}

const fraction = (x) => ((x - Math.floor(x)) * 2 ** 32) >>> 0;
const numbers = Array.from({length: 310}, (_, i) => i + 2);
const PRIMES = numbers.filter((n) => !numbers.some((d) => d * d <= n && n % d === 0));
const ROUND_CONSTANTS = PRIMES.map((n) => fraction(Math.cbrt(n)));

/** Return the SHA-256 of bytes, as bytes. */
export function sha256(body) {
  const padded = new Uint8Array((Math.floor((body.length + 8) / 64) + 1) * 64);
  padded.set(body);
  padded[body.length] = 0x80;
  const view = new DataView(padded.buffer), h = Uint32Array.from(PRIMES.slice(0, 8), (n) => fraction(Math.sqrt(n)));
  view.setBigUint64(padded.length - 8, BigInt(body.length) * 8n);
  const w = new Int32Array(64);
  for (let at = 0; at < padded.length; at += 64) {
    for (let i = 0; i < 16; i++) w[i] = view.getInt32(at + 4 * i);
    for (let i = 16; i < 64; i++) {
      const a = w[i - 15], b = w[i - 2];
      const s0 = ((a >>> 7) | (a << 25)) ^ ((a >>> 18) | (a << 14)) ^ (a >>> 3);
      const s1 = ((b >>> 17) | (b << 15)) ^ ((b >>> 19) | (b << 13)) ^ (b >>> 10);
      w[i] = w[i - 16] + s0 + w[i - 7] + s1;
    }
    let [a, b, c, d, e, f, g, last] = h;
    for (let i = 0; i < 64; i++) {
      const s1 = ((e >>> 6) | (e << 26)) ^ ((e >>> 11) | (e << 21)) ^ ((e >>> 25) | (e << 7));
      const s0 = ((a >>> 2) | (a << 30)) ^ ((a >>> 13) | (a << 19)) ^ ((a >>> 22) | (a << 10));
      const one = (last + s1 + ((e & f) ^ (~e & g)) + ROUND_CONSTANTS[i] + w[i]) | 0;
      const two = (s0 + ((a & b) ^ (a & c) ^ (b & c))) | 0;
      [last, g, f, e, d, c, b, a] = [g, f, e, (d + one) | 0, c, b, a, (one + two) | 0];
    }
    [a, b, c, d, e, f, g, last].forEach((value, i) => { h[i] += value; });
  }
  const digest = new Uint8Array(32);
  h.forEach((value, i) => new DataView(digest.buffer).setUint32(4 * i, value));
  return digest;
}

const hex = (bytes) => Array.from(bytes, (byte) => byte.toString(16).padStart(2, "0")).join("");

function base64(bytes) {
  let text = "";
  for (let at = 0; at < bytes.length; at += 0x8000) text += String.fromCharCode(...bytes.subarray(at, at + 0x8000));
  return btoa(text);
}

const bytesOf = (text) => Uint8Array.from(atob(text), (character) => character.charCodeAt(0));

// Models: a stack of layers, whose parameters are one flat vector.

/**
 * Each layer: the shape of its output [per example], the number of its parameters, `forward(x, p)` and
 * `backward(dy, x, p, dp)`, which adds to `dp` and returns the gradient by x. Arrays are flat, example after example.
 */
const LAYERS = {
  flatten: (_, shape) => ({shape: [product(shape)], numParams: 0, forward: (x) => x, backward: (dy) => dy}),
  relu: (_, shape) => ({
    shape, numParams: 0, forward: (x) => x.map((value) => (value > 0 ? value : 0)),
    backward: (dy, x) => dy.map((value, i) => (x[i] > 0 ? value : 0)),
  }),
  linear: ({inputs, outputs, bias}) => ({
    shape: [outputs],
    numParams: inputs * outputs + (bias ? outputs : 0),
    forward(x, p) {
      const n = x.length / inputs, y = new Float64Array(n * outputs);
      for (let k = 0; k < n; k++) {
        for (let o = 0; o < outputs; o++) {
          let sum = bias ? p[inputs * outputs + o] : 0;
          for (let i = 0, a = k * inputs, b = o * inputs; i < inputs; i++) sum += x[a + i] * p[b + i];
          y[k * outputs + o] = sum;
        }
      }
      return y;
    },
    backward(dy, x, p, dp) {
      const n = x.length / inputs, dx = new Float64Array(x.length);
      for (let k = 0; k < n; k++) {
        for (let o = 0; o < outputs; o++) {
          const g = dy[k * outputs + o];
          if (bias) dp[inputs * outputs + o] += g;
          for (let i = 0, a = k * inputs, b = o * inputs; i < inputs; i++) {
            dp[b + i] += g * x[a + i];
            dx[a + i] += g * p[b + i];
          }
        }
      }
      return dx;
    },
  }),
  conv2d: ({inputs, outputs, kernel: [kh, kw], stride: [sh, sw], padding: [ph, pw], bias}, [, height, width]) => {
    const rows = Math.floor((height + 2 * ph - kh) / sh) + 1, columns = Math.floor((width + 2 * pw - kw) / sw) + 1;
    const numWeights = outputs * inputs * kh * kw;
    /** Call f(weight, begin in x, begin in y, length) for each stretch of a row of y that a weight contributes to. */
    function each(n, f) {
      for (let k = 0; k < n; k++) for (let o = 0; o < outputs; o++) for (let i = 0; i < inputs; i++) {
        for (let a = 0; a < kh; a++) for (let b = 0; b < kw; b++) {
          const w = ((o * inputs + i) * kh + a) * kw + b, first = Math.max(0, Math.ceil((pw - b) / sw));
          const length = Math.min(columns - 1, Math.floor((width - 1 + pw - b) / sw)) - first + 1;
          for (let r = 0; r < rows; r++) {
            const row = r * sh - ph + a, at = ((k * inputs + i) * height + row) * width + first * sw - pw + b;
            if (row >= 0 && row < height) f(w, at, ((k * outputs + o) * rows + r) * columns + first, length);
          }
        }
      }
    }
    const examples = (x) => x.length / (inputs * height * width);
    return {
      shape: [outputs, rows, columns],
      numParams: numWeights + (bias ? outputs : 0),
      forward(x, p) {
        const y = new Float64Array(examples(x) * outputs * rows * columns);
        if (bias) for (let at = 0; at < y.length; at++) y[at] = p[numWeights + (Math.floor(at / (rows * columns)) % outputs)];
        each(examples(x), (w, i, o, length) => {
          for (let c = 0; c < length; c++) y[o + c] += p[w] * x[i + c * sw];
        });
        return y;
      },
      backward(dy, x, p, dp) {
        const dx = new Float64Array(x.length);
        if (bias) dy.forEach((g, at) => { dp[numWeights + (Math.floor(at / (rows * columns)) % outputs)] += g; });
        each(examples(x), (w, i, o, length) => {
          let sum = 0, weight = p[w];
          for (let c = 0; c < length; c++) {
            sum += dy[o + c] * x[i + c * sw];
            dx[i + c * sw] += dy[o + c] * weight;
          }
          dp[w] += sum;
        });
        return dx;
      },
    };
  },
  max_pool2d: ({kernel: [kh, kw], stride: [sh, sw]}, [channels, height, width]) => {
    const rows = Math.floor((height - kh) / sh) + 1, columns = Math.floor((width - kw) / sw) + 1;
    /** Return the position in x of the maximum of each window; of equal ones, the first. */
    function largest(x) {
      const planes = x.length / (height * width), found = new Int32Array(planes * rows * columns);
      for (let plane = 0, y = 0; plane < planes; plane++) for (let r = 0; r < rows; r++) {
        for (let c = 0; c < columns; c++, y++) {
          const start = (plane * height + r * sh) * width + c * sw;
          let best = start;
          for (let a = 0; a < kh; a++) for (let b = 0; b < kw; b++) {
            if (x[start + a * width + b] > x[best]) best = start + a * width + b;
          }
          found[y] = best;
        }
      }
      return found;
    }
    return {
      shape: [channels, rows, columns],
      numParams: 0,
      forward: (x) => Float64Array.from(largest(x), (at) => x[at]),
      backward(dy, x) {
        const dx = new Float64Array(x.length);
        largest(x).forEach((at, y) => { dx[at] += dy[y]; });
        return dx;
      },
    };
  },
};

const product = (shape) => shape.reduce((a, b) => a * b, 1);

/** A stack of layers with softmax cross-entropy at its end. */
export class Model {
  /**
   * @param {object[]} layers as the server describes them
   * @param {number[]} inputShape of one example
   */
  constructor(layers, inputShape) {
    let shape = inputShape;
    this.numParams = 0;
    this.layers = layers.map((told) => {
      if (!Object.hasOwn(LAYERS, told.kind)) throw new JoinError(`this client has no layer ${told.kind}`);
      const layer = LAYERS[told.kind](told, shape);
      shape = layer.shape;
      layer.at = this.numParams;
      this.numParams += layer.numParams;
      return layer;
    });
    this.inputs = product(inputShape);
    this.outputs = product(shape);
  }

  /** Return the logits of examples, and the input of each layer. */
  forward(params, x) {
    const entered = [];
    for (const layer of this.layers) {
      entered.push(x);
      x = layer.forward(x, params.subarray(layer.at, layer.at + layer.numParams));
    }
    return {logits: x, entered};
  }

  /** Return the mean loss over a minibatch, and its gradient by the parameters. */
  gradient(params, x, labels) {
    const {logits, entered} = this.forward(params, x), n = labels.length;
    const dp = new Float64Array(this.numParams);
    let dy = new Float64Array(logits.length), loss = 0;
    for (let k = 0; k < n; k++) {
      const row = logits.subarray(k * this.outputs, (k + 1) * this.outputs), top = Math.max(...row);
      const sum = row.reduce((total, value) => total + Math.exp(value - top), 0);
      loss += Math.log(sum) + top - row[labels[k]];
      for (let c = 0; c < row.length; c++) dy[k * this.outputs + c] = Math.exp(row[c] - top) / sum / n;
      dy[k * this.outputs + labels[k]] -= 1 / n;
    }
    for (let i = this.layers.length - 1; i >= 0; i--) {
      const layer = this.layers[i], end = layer.at + layer.numParams;
      dy = layer.backward(dy, entered[i], params.subarray(layer.at, end), dp.subarray(layer.at, end));
    }
    return {loss: loss / n, gradient: dp};
  }

  /** Return the class with the largest logit of each example. */
  predict(params, x) {
    const {logits} = this.forward(params, x);
    return Array.from({length: logits.length / this.outputs}, (_, k) => {
      const row = logits.subarray(k * this.outputs, (k + 1) * this.outputs);
      return row.indexOf(Math.max(...row));
    });
  }
}

/** Put examples into flat arrays. `inputs` may be nested arrays, or one typed array. */
export function examples(inputs, targets) {
  const flat = ArrayBuffer.isView(inputs) ? inputs : inputs.flat(Infinity);
  return {x: Float64Array.from(flat), y: Int32Array.from(targets)};
}

/**
 * Train by minibatch SGD from the parameters of a task.
 *
 * @param training description of the computation
 * @param {number[]} inputShape of an example
 * @param {Float64Array} params to start from
 * @param {{x: Float64Array, y: Int32Array}} data of this client
 * @param at see `minibatches`, without the number of examples
 * @param {() => boolean} wanted returns false to stop
 * @returns {{delta: Float64Array, loss: number, numSteps: number}|null} null where it was stopped
 */
export async function train(training, inputShape, params, data, at, wanted = () => true) {
  const model = new Model(training.layers, inputShape), {sgd} = training, n = data.y.length;
  if (params.length !== model.numParams) throw new JoinError("the server's model is not the one that it describes");
  const batches = minibatches(sgd, training.seed, {...at, numExamples: n});
  const moved = Float64Array.from(params), velocity = sgd.momentum ? new Float64Array(params.length) : null;
  let total = 0, since = performance.now(); // no clock that can be set, which would end heartbeats when it is set back
  for (const rows of batches) {
    const x = new Float64Array(rows.length * model.inputs);
    rows.forEach((row, k) => x.set(data.x.subarray(row * model.inputs, (row + 1) * model.inputs), k * model.inputs));
    const {loss, gradient} = model.gradient(moved, x, rows.map((row) => data.y[row]));
    total += loss;
    for (let i = 0; i < moved.length; i++) {
      let step = gradient[i] + sgd.weight_decay * moved[i];
      if (velocity !== null) step = velocity[i] = sgd.momentum * velocity[i] + step;
      moved[i] -= sgd.lr * step;
    }
    if (performance.now() - since > 50) { // let heartbeats and the page have their turn
      await sleep(0);
      if (!wanted()) return null;
      since = performance.now();
    }
  }
  return {
    delta: moved.map((value, i) => value - params[i]), loss: total / Math.max(batches.length, 1), numSteps: batches.length,
  };
}

const sleep = (seconds) => new Promise((done) => setTimeout(done, 1000 * seconds));

// The client: its state, and its requests.

/** State of a client in memory. Every `save` replaces all of it; `FileStore` survives the process. */
export class MemoryStore {
  async load() { return this.state ?? null; }
  async save(state) { this.state = structuredClone(state); }
}

/** State of a client in a file (Node): on the disk before `save` returns, and replaced by one atomic move. */
export class FileStore {
  constructor(path) { this.path = path; }

  async load() {
    const fs = await import("node:fs/promises");
    try {
      return JSON.parse(await fs.readFile(this.path, "utf8"));
    } catch (error) {
      if (error.code === "ENOENT") return null;
      throw new JoinError(`${this.path} cannot be read (${error.message}): restore it, or give another --state`);
    }
  }

  async save(state) {
    const fs = await import("node:fs/promises"), path = await import("node:path");
    async function written(file, flags, text) {
      const handle = await fs.open(file, flags, 0o600);
      if (text) await handle.writeFile(text);
      await handle.sync();
      await handle.close();
    }
    await written(`${this.path}.part`, "w", JSON.stringify(state));
    await fs.rename(`${this.path}.part`, this.path);
    await written(path.dirname(path.resolve(this.path)), "r");
  }
}

/** State of a client in a browser, which survives when the page is closed. */
export class BrowserStore {
  constructor(key = "turnout") { this.key = key; }
  async load() { return JSON.parse(localStorage.getItem(this.key)); }
  async save(state) { localStorage.setItem(this.key, JSON.stringify(state)); }
}

/** One client of a federation. */
export class Client {
  /**
   * @param {string} url of the server
   * @param {{x: Float64Array, y: Int32Array}} data returned by `examples`
   * @param {object} options
   *   store: of the state; name: shown to the operator; code: one-time code; wait: seconds of a long poll for work; backoff,
   *   longest: seconds of the first and of the longest pause before another attempt; free: draw random minibatches instead
   *   of those that the protocol specifies; report: called with a description of each event.
   */
  constructor(url, data, options = {}) {
    this.url = url.replace(/\/+$/, "");
    this.data = data;
    this.options = {store: new MemoryStore(), wait: 25, backoff: 0.5, longest: 60, free: false, report: () => {}, ...options};
    this.taken = 0;
    this.stopped = new AbortController();
    this.model = {digest: null};
  }

  /** Leave as soon as possible; an open task is given up. */
  stop() { this.stopped.abort(); }

  get stopping() { return this.stopped.signal.aborted; }

  /** Take part until the run is over or `stop` is called; return why it ended. */
  async run() {
    const {store} = this.options;
    this.about = await this.announcement();
    read("the server's description of the run", () => this.check(this.about));
    this.state = (await store.load()) ?? {};
    if (!this.state.token) {
      const token = hex(crypto.getRandomValues(new Uint8Array(32)));
      this.state = {token, client: null, run: null, stepsDone: 0, pending: null};
      await store.save(this.state); // an enrollment whose answer is lost is repeated with the same token
    }
    await this.enroll();
    for (let attempt = 0; ;) {
      if (this.state.pending) await this.alive(this.state.pending.task, () => this.deliver(this.state.pending));
      if (this.stopping) {
        await this.leave();
        return "stopped";
      }
      if (this.state.pending) continue;
      const {table} = await this.ask("POST", "/v1/checkin", {json: {protocol: PROTOCOL, wait: this.options.wait}, stops: true});
      if (table.over) return printable(table.over, 200);
      if (table.task) {
        attempt = 0;
        await this.alive(checkedTask(table.task), (life) => this.work(life));
      } else if (Array.isArray(table.come_back) && table.come_back.length === 2) {
        attempt = 0;
        const [least, most] = table.come_back.map(seconds);
        await this.pause(least + Math.random() * Math.max(0, most - least));
      } else { // an answer of somebody else, such as a proxy
        await this.pause(this.backoff(++attempt));
      }
    }
  }

  /** Send the leave, once: without it, the lease ends later. */
  async leave(keepalive = false) { await this.request("POST", "/v1/leave", {json: {}, keepalive, seconds: 10}); }

  /** Return the description of the run. */
  async announcement() {
    for (let attempt = 1; ; attempt++) {
      const answer = await this.request("GET", "/v1/run", {stops: true});
      if (![0, 429].includes(answer.status) && answer.status < 500 && answer.table?.input_shape !== null) return answer.table;
      if (this.stopping) throw new JoinError("stopped");
      if (attempt === 1) this.options.report({event: "waiting", reason: answer.reason});
      await this.pause(Math.max(this.backoff(attempt), answer.retryAfter));
    }
  }

  /** Check that this client can take part in the run. */
  check(about) {
    if (about.protocol === undefined) throw new JoinError(`what answers at ${this.url} is no turnout server`);
    if (about.protocol !== PROTOCOL) {
      throw new JoinError(`the server speaks protocol ${about.protocol}, and this client ${PROTOCOL}: update the older one`);
    }
    const {training, input_shape: shape, num_classes: classes} = about, {x, y} = this.data;
    if (!training?.layers) throw new JoinError(`this client cannot take part: ${training?.reason ?? "no training is described"}`);
    if (training.loss !== "cross_entropy") throw new JoinError(`this client has no loss ${training.loss}`);
    const size = product(shape);
    if (y.length === 0 || x.length !== y.length * size) {
      throw new JoinError(`${y.length} examples have ${x.length} numbers, needed ${size} each, in shape [${shape}]`);
    }
    if (y.some((label) => label < 0 || label >= classes)) throw new JoinError(`a label is not in 0 to ${classes - 1}`);
    const unknown = Object.keys(training.report).filter((name) => !/^(num_examples|num_steps|delta|seen\.loss)$/.test(name));
    if (unknown.length) throw new JoinError(`the server wants ${unknown.join(", ")}, which this client does not measure`);
    this.most = 4096 + 8 * new Model(training.layers, shape).numParams;
  }

  /** Enroll, or verify that the client is still enrolled. */
  async enroll() {
    const {name, code, store} = this.options;
    const answer = await this.ask("POST", "/v1/enrol", {json: {protocol: PROTOCOL, name, code}}); // undefined is left out
    const {client, run} = answer.table;
    if (this.stopping) return;
    if (!isWhole(client) || !RUN.test(run)) throw new JoinError(`the server does not take this client: ${answer.reason}`);
    if (this.state.run !== null && this.state.run !== run) {
      throw new JoinError(`the server is at another run (${run}, not ${this.state.run}): give another state`);
    }
    const other = this.state.client !== null && (answer.status === 201 || client !== this.state.client); // a new client
    this.state = {...this.state, client, run, ...(other && {stepsDone: 0, pending: null})};
    await store.save(this.state);
    this.options.report({event: "enrolled", client, run});
  }

  /** Send heartbeats of a task while a function does something about it; `open` is false once the server says so. */
  async alive(task, what) {
    const life = {task, open: true, beating: false};
    const beat = setInterval(async () => {
      if (life.beating) return; // one at a time, however long the server takes to answer; its errors concern no report
      life.beating = true;
      const answer = this.request("POST", `/v1/tasks/${task.task}/heartbeat`, {json: {}, most: 4096});
      const {status, table} = await answer.catch(() => ({}));
      life.open &&= !(status === 200 && table.state !== "open");
      life.beating = false;
    }, 1000 * Math.min(Math.max(task.heartbeat, 0.1), MOST_SECONDS));
    await what(life).finally(() => clearInterval(beat));
  }

  /** Do a task, and store the report. */
  async work(life) {
    const {task} = life, give = (reason) => this.ask("POST", `/v1/tasks/${task.task}/fail`, {json: {reason}});
    if (task.phase !== "train") return void (await give("unknown"));
    const params = await this.download(task);
    if (params === null) return;
    this.options.report({event: "training", task: task.task, version: task.version, params});
    const {training, input_shape: shape} = this.about, {client, stepsDone} = this.state;
    const described = this.options.free ? {...training, seed: String(Math.floor(Math.random() * 2 ** 52))} : training;
    const at = {client, version: task.version, repeat: task.repeat, stepsDone}, wanted = () => life.open && !this.stopping;
    const done = await train(described, shape, params, this.data, at, wanted);
    if (done === null) return;
    if (!done.delta.every(Number.isFinite)) return void (await give("died"));
    const counts = {num_examples: [BigInt(this.data.y.length)], num_steps: [BigInt(done.numSteps)]};
    const values = {...counts, delta: done.delta, "seen.loss": [done.loss]};
    const tensors = Object.entries(training.report).map(([name, [dtype, shape]]) => [name, [dtype, shape, values[name]]]);
    const body = read("the server's form of reports", () => encode(Object.fromEntries(tensors)));
    const pending = {task, body: base64(body), stepsDone: stepsDone + done.numSteps};
    this.state = {...this.state, pending};
    await this.options.store.save(this.state);
    this.options.report({event: "trained", task: task.task, loss: done.loss});
  }

  /** Download the model of a task, and resume after interruptions; return null where the server has deleted it. */
  async download(task) {
    if (this.model.digest === task.model) return this.model.params;
    if (!(task.size <= this.most)) {
      throw new JoinError(`the server's model has ${task.size} bytes, and this client's ${this.most} at most`);
    }
    let got = new Uint8Array(0), attempt = 0;
    while (hex(sha256(got)) !== task.model) {
      if (this.stopping) return null;
      if (got.length >= task.size) got = new Uint8Array(0); // damaged: once more from the start
      const headers = got.length ? {range: `bytes=${got.length}-`} : {};
      const options = {headers, most: task.size, seconds: 120 + task.size / 50_000, partial: true, stops: true};
      const answer = await this.once("GET", `/v1/models/${task.model}`, options);
      if (answer.status === 404) return this.pause(this.backoff(4)).then(() => null); // it may get the same task again
      if (answer.status === 200) got = answer.body;
      if (answer.status === 206) got = joined([got, answer.body]);
      if (got.length === task.size && hex(sha256(got)) === task.model) break;
      await this.pause(Math.max(this.backoff(++attempt), answer.retryAfter));
    }
    const {params} = read("the server's model", () => decode(got));
    if (!params) throw new JoinError("the server's model has no params");
    this.model = {digest: task.model, params: Float64Array.from(params.values, Number)};
    return this.model.params;
  }

  /** Send a report until its outcome is known. */
  async deliver({task, body: text, stepsDone}) {
    const path = `/v1/tasks/${task.task}`, body = bytesOf(text);
    const headers = {
      "content-type": "application/octet-stream",
      "repr-digest": `sha-256=:${base64(sha256(body))}:`,
      "upload-length": String(body.length),
      "task-fingerprint": task.fingerprint,
    };
    for (let offset = 0, attempt = 0; ;) {
      const sent = {body: body.subarray(offset), headers: {...headers, "upload-offset": String(offset)}};
      const answer = await this.once("PUT", `${path}/report`, sent), {status, table} = answer;
      if ((status === 200 || status === 201) && table.state === "taken") {
        this.state = {...this.state, stepsDone, pending: null};
        await this.options.store.save(this.state);
        this.taken++;
        this.options.report({event: "taken", task: task.task, taken: this.taken});
        return;
      }
      if (status === 409 && isWhole(table.offset)) {
        const before = offset;
        offset = Math.min(table.offset, body.length);
        if (offset <= before) await this.pause(this.backoff(++attempt));
        continue;
      }
      if ([404, 409, 410, 413, 422].includes(status)) { // it will never be taken: remember what was remembered before
        this.state = {...this.state, pending: null};
        await this.options.store.save(this.state);
        this.options.report({event: "dropped", task: task.task, reason: answer.reason});
        return;
      }
      await this.pause(Math.max(this.backoff(++attempt), answer.retryAfter));
      if (this.stopping) return;
      const state = (await this.ask("GET", path)).table; // what became of it, if the answer was lost
      offset = isWhole(state.offset) ? Math.min(state.offset, body.length) : 0;
    }
  }

  /** Send a request until it is answered. */
  async ask(method, path, options = {}) {
    for (let attempt = 1; ; attempt++) {
      const answer = await this.once(method, path, options);
      if ((answer.status >= 200 && answer.status < 300) || [404, 409, 410].includes(answer.status)) return answer;
      if (this.stopping) return answer;
      await this.pause(Math.max(this.backoff(attempt), answer.retryAfter));
    }
  }

  /** Send a request with the token, once. */
  async once(method, path, options = {}) {
    const answer = await this.request(method, path, options);
    if ([400, 401, 403, 426].includes(answer.status)) {
      throw new JoinError(`the server does not take this client: ${answer.reason}`);
    }
    return answer;
  }

  /**
   * Send a request. Status 0 means no answer; with `partial`, the received part of an interrupted body is returned.
   * With `stops`, the request ends when the client is to stop.
   */
  async request(method, path, {json, body, headers = {}, most = MOST_JSON, seconds = 120, partial, keepalive, stops} = {}) {
    const token = this.state?.token;
    const all = {...(token && {authorization: `Bearer ${token}`}), ...(json && JSON_BODY), ...headers};
    const answer = {status: 0, body: new Uint8Array(0), table: {}, reason: "no answer", retryAfter: 0};
    const controller = new AbortController(), abort = () => controller.abort();
    let timer = setTimeout(abort, 1000 * seconds), parts = [], size = 0;
    if (stops) this.stopped.signal.addEventListener("abort", abort);
    if (stops && this.stopping) abort();
    try {
      const options = {method, headers: all, body: json ? JSON.stringify(json) : body, keepalive, cache: "no-store"};
      const response = await fetch(this.url + path, {...options, redirect: "error", signal: controller.signal});
      for await (const piece of pieces(response)) {
        parts.push(piece);
        size += piece.length;
        if (size > most) throw new JoinError(`the server's answer to ${path} has more than ${most} bytes`);
        if (partial) answer.status = response.status;
      }
      const isPage = response.ok && response.headers.get("content-type")?.startsWith("text/"); // of a network's login
      answer.status = isPage ? 0 : response.status;
      const after = response.headers.get("retry-after") ?? "";
      answer.retryAfter = /^[0-9]{1,9}$/.test(after) ? Math.min(Number(after), MOST_SECONDS) : 0;
    } catch (error) {
      if (error instanceof JoinError) throw error;
      answer.reason = printable(error.cause?.message || error.message, 200);
      return answer;
    } finally {
      answer.body = joined(parts);
      clearTimeout(timer);
      this.stopped.signal.removeEventListener("abort", abort);
    }
    if (!partial || answer.status >= 400) answer.table = tableOf(answer.body);
    answer.reason = printable(answer.table.reason ?? `it answers ${answer.status}`, 500);
    if (answer.status >= 400 && !("reason" in answer.table)) answer.status = 0; // a proxy's
    return answer;
  }

  backoff(attempt) {
    const {backoff, longest} = this.options;
    return Math.random() * Math.min(longest, backoff * 2 ** Math.min(attempt, 30));
  }

  /** Pause for some seconds, or until the client is to stop. */
  pause(length) {
    const {signal} = this.stopped;
    return new Promise((done) => {
      const end = () => (clearTimeout(timer), signal.removeEventListener("abort", end), done());
      const timer = setTimeout(end, this.stopping ? 0 : 1000 * length);
      signal.addEventListener("abort", end);
    });
  }
}

const isWhole = (value) => Number.isSafeInteger(value) && value >= 0;

/** Read a number of seconds to wait, an hour at most. */
function seconds(value) {
  if (typeof value !== "number" || !(value >= 0)) throw new JoinError("the server's answer has no number of seconds");
  return Math.min(value, MOST_SECONDS);
}

/** Return a task if all of its fields are valid. */
function checkedTask(task) {
  const whole = [task.task, task.version + 1, task.repeat, task.size].every(isWhole) && task.heartbeat > 0;
  const texts = [[task.phase, /^[a-z_]{1,40}$/], [task.model, /^[0-9a-f]{64}$/], [task.fingerprint, /^[0-9a-f]{32}$/]];
  if (!whole || !texts.every(([text, pattern]) => pattern.test(text))) throw new JoinError("the server's answer is no task");
  return task;
}

function tableOf(body) {
  try {
    return Object(JSON.parse(new TextDecoder().decode(body)));
  } catch {
    return {};
  }
}

function joined(parts) {
  const whole = new Uint8Array(parts.reduce((size, part) => size + part.length, 0));
  let end = 0;
  for (const part of parts) whole.set(part, (end += part.length) - part.length);
  return whole;
}

/** Yield the pieces of a body; not every browser can iterate over a stream. */
async function* pieces(response) {
  const reader = response.body?.getReader();
  if (!reader) return;
  try {
    for (let piece = await reader.read(); !piece.done; piece = await reader.read()) yield piece.value;
  } finally {
    reader.cancel().catch(() => {});
  }
}

// The command line.

const USAGE = "usage: node turnout.js URL --data FILE.json [--state FILE.json] [--name NAME] [--code CODE] [--free]";

async function main(args) {
  const fs = await import("node:fs/promises"), {parseArgs} = await import("node:util"), text = {type: "string"};
  const options = {data: text, state: text, name: text, code: text, free: {type: "boolean"}};
  try {
    const {values: {data, state, ...others}, positionals: [url]} = parseArgs({args, options, allowPositionals: true});
    if (!url || !data) throw new JoinError(USAGE);
    const {inputs, targets} = JSON.parse(await fs.readFile(data, "utf8"));
    if (state) others.store = new FileStore(state);
    const client = new Client(url, examples(inputs, targets), {...others, report: said});
    for (const signal of ["SIGINT", "SIGTERM"]) process.once(signal, () => client.stop());
    console.log(`${await client.run()}: ${client.taken} reports were taken`);
  } catch (error) {
    if (!(error instanceof JoinError || error.code)) throw error;
    console.error(error.message);
    process.exitCode = 1;
  }
}

function said({event, ...facts}) {
  const {params, ...shown} = facts;
  console.log(`${event} ${Object.entries(shown).map(([name, value]) => `${name}=${value}`).join(" ")}`);
}

if (typeof process !== "undefined" && process.argv?.[1]) {
  const {pathToFileURL} = await import("node:url"), {realpathSync} = await import("node:fs");
  if (pathToFileURL(realpathSync(process.argv[1])).href === import.meta.url) await main(process.argv.slice(2));
}
