// Ask for a context:
//   node ask.mjs OWNER INPUT [--history FILE] [--tools FILE] [--max-tokens N] [--explain]
//     [--recall-tool] [--recall]
// The bus is in REDIS_URL or CTXB_BUS__URL, or that of a worker in this folder. Nothing to install.
// In a program: import { ask, findBus, open, publish } from "./ask.mjs";
import { randomUUID } from "node:crypto";
import { existsSync, readFileSync, realpathSync } from "node:fs";
import { connect } from "node:net";
import { fileURLToPath } from "node:url";
import { parseArgs } from "node:util";

/** Read one reply at a place, texts as buffers; undefined while it is not all there. */
function read(bytes, at) {
  const end = bytes.indexOf("\r\n", at);
  if (end < 0) return undefined;
  const kind = String.fromCharCode(bytes[at]);
  const line = bytes.toString("utf8", at + 1, end);
  const next = end + 2;
  if (kind === "-") return [new Error(line), next];
  if (kind === "+") return [line, next];
  const count = Number(line);
  if (kind === ":") return [count, next];
  if (count < 0) return [null, next];
  if (kind === "$") {
    const stop = next + count;
    return bytes.length < stop + 2 ? undefined : [bytes.subarray(next, stop), stop + 2];
  }
  return readAll(bytes, next, count);
}

function readAll(bytes, at, count) {
  const found = [];
  while (found.length < count) {
    const one = read(bytes, at);
    if (!one) return undefined;
    found.push(one[0]);
    at = one[1];
  }
  return [found, at];
}

/** Return a reply with its buffers as texts. */
function toText(reply) {
  if (Buffer.isBuffer(reply)) return reply.toString("utf8");
  return Array.isArray(reply) ? reply.map(toText) : reply;
}

/** Connect; of the result, `command` sends a command, and `bytes` returns buffers, as for reports. */
export function open(url) {
  const { hostname, port, username, password } = new URL(url);
  const socket = connect(Number(port || 6379), hostname);
  const advice = "start `ctxb worker` here, or correct REDIS_URL";
  const waiting = [];
  let bytes = Buffer.alloc(0);
  const fail = (error) => waiting.splice(0).forEach((each) => each.reject(error));
  const unreachable = ({ code }) => new Error(`no server at ${hostname}:${port} (${code}): ${advice}`);
  socket.on("error", (error) => fail(unreachable(error)));
  socket.on("close", () => fail(new Error("the connection was closed")));
  socket.on("data", (more) => {
    bytes = Buffer.concat([bytes, more]);
    for (let one; waiting.length && (one = read(bytes, 0)); bytes = bytes.subarray(one[1])) {
      const { resolve, reject } = waiting.shift();
      one[0] instanceof Error ? reject(one[0]) : resolve(one[0]);
    }
  });
  const bytesOf = (...words) =>
    new Promise((resolve, reject) => {
      const parts = words.map((word) => `$${Buffer.byteLength(word)}\r\n${word}\r\n`);
      waiting.push({ resolve, reject });
      socket.write(`*${words.length}\r\n${parts.join("")}`);
    });
  const command = async (...words) => toText(await bytesOf(...words));
  const user = decodeURIComponent(username) || "default";
  const known = password ? command("AUTH", user, decodeURIComponent(password)) : Promise.resolve();
  return { command, bytes: bytesOf, known, close: () => socket.end() };
}

/**
 * Return the response to a request with a timeout in seconds. `more` is added to the request: a
 * `conversation_id`, a `run_id`, or an `id` to repeat.
 */
export async function ask(bus, ownerKey, content, seconds = 15, more = {}) {
  const request = { id: `msg_${randomUUID()}`, owner_key: ownerKey, content, ...more };
  const replyTo = `context.reply.${request.id}`;
  request.metadata = { reply_to: replyTo, reply_kind: "list", timeout_ms: seconds * 1000 };
  await bus.known;
  await bus.command("XADD", "context.build.request", "*", "data", JSON.stringify(request));
  // a request that expires is answered, too: a moment after its timeout
  const answer = await bus.command("BLPOP", replyTo, String(seconds + 1));
  if (!answer) throw new Error(`no answer in ${seconds} s: is a worker running?`);
  return JSON.parse(answer[1]);
}

/** Add a row of history to a stream, such as "llm.results". */
export async function publish(bus, stream, row) {
  await bus.known;
  await bus.command("XADD", stream, "*", "data", JSON.stringify(row));
}

/** Return the URL of the bus. */
export function findBus() {
  const url = process.env.REDIS_URL || process.env.CTXB_BUS__URL;
  if (url) return url;
  if (existsSync(".ctxb/bus.url")) return readFileSync(".ctxb/bus.url", "utf8").trim();
  const hint = "start `ctxb worker` here, or set REDIS_URL";
  throw new Error(`no worker in this folder (.ctxb/bus.url is missing): ${hint}`);
}

function readList(name) {
  try {
    return name && JSON.parse(readFileSync(name, "utf8"));
  } catch (error) {
    throw new Error(`${name}: ${error.message}`);
  }
}

/** Return the owner, and the content of the request. */
function readArguments() {
  const text = { type: "string" };
  const flag = { type: "boolean" };
  const { values: given, positionals } = parseArgs({
    allowPositionals: true,
    options: {
      ...{ history: text, tools: text, "max-tokens": text },
      ...{ explain: flag, "recall-tool": flag, recall: flag },
    },
  });
  const maxTokens = given["max-tokens"];
  if (maxTokens !== undefined && !/^[1-9][0-9]*$/.test(maxTokens)) {
    throw new Error("--max-tokens must be a whole number above 0");
  }
  const [owner, input, ...others] = positionals;
  if (!input || others.length > 0) throw new Error("OWNER and INPUT are needed, each in quotes");
  if (given.recall) return [owner, JSON.parse(input)]; // what a model gave the tool recall
  const context = {
    past: readList(given.history),
    max_tokens: maxTokens && Number(maxTokens),
    explain: given.explain,
    recall_tool: given["recall-tool"],
  };
  return [owner, { current_input: input, tools: readList(given.tools), context }];
}

function stop(code, message) {
  console.error(message);
  process.exit(code);
}

async function main() {
  let request;
  try {
    request = readArguments();
  } catch (error) {
    const files = "[--history FILE] [--tools FILE]";
    const options = `${files} [--max-tokens N] [--explain] [--recall-tool] [--recall]`;
    stop(2, `${error.message}\nusage: node ask.mjs OWNER INPUT ${options}`);
  }
  try {
    const bus = open(findBus());
    const response = await ask(bus, ...request);
    process.stdout.write(JSON.stringify(response));
    if (response.content.status === "error") process.exitCode = 1;
    bus.close();
  } catch (error) {
    stop(1, error.message);
  }
}

const [, program] = process.argv;
if (program && realpathSync(program) === fileURLToPath(import.meta.url)) await main();
