// Ask for a context: node ask.mjs OWNER INPUT, with the bus in REDIS_URL. Nothing to install.
import { randomUUID } from "node:crypto";
import { connect } from "node:net";

/** Read one reply at a place; undefined while it is not all there. */
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
    return bytes.length < stop + 2 ? undefined : [bytes.toString("utf8", next, stop), stop + 2];
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

/** Connect, and return a function that sends a command and awaits its reply. */
function open(url) {
  const { hostname, port, username, password } = new URL(url);
  const socket = connect(Number(port || 6379), hostname);
  const waiting = [];
  let bytes = Buffer.alloc(0);
  const fail = (error) => waiting.splice(0).forEach((each) => each.reject(error));
  socket.on("error", fail).on("close", () => fail(new Error("the connection was closed")));
  socket.on("data", (more) => {
    bytes = Buffer.concat([bytes, more]);
    for (let one; waiting.length && (one = read(bytes, 0)); bytes = bytes.subarray(one[1])) {
      const { resolve, reject } = waiting.shift();
      one[0] instanceof Error ? reject(one[0]) : resolve(one[0]);
    }
  });
  const command = (...words) =>
    new Promise((resolve, reject) => {
      const parts = words.map((word) => `$${Buffer.byteLength(word)}\r\n${word}\r\n`);
      waiting.push({ resolve, reject });
      socket.write(`*${words.length}\r\n${parts.join("")}`);
    });
  const user = decodeURIComponent(username) || "default";
  const known = password ? command("AUTH", user, decodeURIComponent(password)) : Promise.resolve();
  return { command, known, close: () => socket.end() };
}

/** Return the response to a request of so many seconds. */
async function ask(bus, ownerKey, text, seconds = 15) {
  const id = `msg_${randomUUID()}`;
  const replyTo = `context.reply.${id}`;
  const request = {
    id,
    owner_key: ownerKey,
    content: { current_input: text },
    metadata: { reply_to: replyTo, reply_kind: "list", timeout_ms: seconds * 1000 },
  };
  await bus.command("XADD", "context.build.request", "*", "data", JSON.stringify(request));
  const answer = await bus.command("BLPOP", replyTo, String(seconds));
  if (!answer) throw new Error(`no answer to ${id} in ${seconds} s`);
  return JSON.parse(answer[1]);
}

const [owner, input] = process.argv.slice(2);
const bus = open(process.env.REDIS_URL);
await bus.known;
process.stdout.write(JSON.stringify(await ask(bus, owner, input)));
bus.close();
