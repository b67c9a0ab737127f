/** Ask the API of the worker that served this page: the owner's key and the token go in headers. */

const TOKEN_KEY = "ctxb.token";

/** What the API refused, or that it could not be reached. */
export class ApiError extends Error {
  /**
   * @param {number} status The HTTP status; 0 where no answer came.
   * @param {{code: string, title: string, detail: string, retryable: boolean}} problem
   */
  constructor(status, problem) {
    super(problem.detail || problem.title);
    this.name = "ApiError";
    this.status = status;
    this.code = problem.code;
    this.title = problem.title;
    this.detail = problem.detail;
    this.retryable = problem.retryable;
  }
}

/** The token; it is kept in this tab only, until the tab is closed. */
export const token = {
  get: () => sessionStorage.getItem(TOKEN_KEY) ?? "",
  set: (value) =>
    value ? sessionStorage.setItem(TOKEN_KEY, value) : sessionStorage.removeItem(TOKEN_KEY),
};

/** Fetch an owner's data, and return it. Throws `ApiError`, or `AbortError`. */
export async function get(path, { owner = "", signal } = {}) {
  return (await answered(path, { headers: headersFor(owner), signal })).json();
}

/** Send something of an owner's as JSON, and return the answer. Throws as `get` does. */
export async function post(path, body, { owner = "", signal } = {}) {
  const headers = { ...headersFor(owner), "Content-Type": "application/json" };
  return (
    await answered(path, { method: "POST", headers, body: JSON.stringify(body), signal })
  ).json();
}

/**
 * Yield the events of an owner's feed, `{id, event, data}`; a comment is `{comment}`.
 *
 * `EventSource` can't send headers, so the stream is read with `fetch`.
 */
export async function* listen(path, { owner, signal, lastEventId = "" }) {
  const headers = { ...headersFor(owner), Accept: "text/event-stream" };
  if (lastEventId) headers["Last-Event-ID"] = lastEventId;
  const response = await answered(path, { headers, signal });
  let rest = "";
  for await (const text of chunks(response.body)) {
    const frames = (rest + text).replaceAll("\r\n", "\n").split("\n\n");
    rest = frames.pop();
    for (const frame of frames) yield readFrame(frame);
  }
}

async function* chunks(body) {
  const reader = body.pipeThrough(new TextDecoderStream()).getReader();
  try {
    for (;;) {
      const { done, value } = await reader.read();
      if (done) return;
      yield value;
    }
  } finally {
    // a listener that stops releases the connection
    reader.cancel().catch(() => {});
  }
}

function readFrame(frame) {
  const found = { id: "", event: "message", data: "", comment: null };
  const data = [];
  for (const line of frame.split("\n")) {
    const colon = line.indexOf(":");
    const field = colon < 0 ? line : line.slice(0, colon);
    const value = colon < 0 ? "" : line.slice(colon + 1).replace(/^ /, "");
    if (field === "") found.comment = value;
    else if (field === "data") data.push(value);
    else if (field === "id" || field === "event") found[field] = value;
  }
  return { ...found, data: data.join("\n") };
}

function headersFor(owner) {
  const headers = {};
  if (owner) headers["X-Owner-Key"] = encodeURIComponent(owner.toWellFormed());
  if (token.get()) headers.Authorization = `Bearer ${token.get()}`;
  return headers;
}

async function answered(path, options) {
  let response;
  try {
    response = await fetch(path, { ...options, cache: "no-store", credentials: "omit" });
  } catch (error) {
    if (error.name === "AbortError") throw error;
    throw new ApiError(0, {
      code: "unreachable",
      title: "The worker can't be reached",
      detail: "There was no answer. Is the worker running, and is this still its address?",
      retryable: true,
    });
  }
  if (!response.ok) throw new ApiError(response.status, await problemOf(response));
  return response;
}

/** Return the error of an answer; one without a body, such as a proxy's, has only its status. */
async function problemOf(response) {
  try {
    const body = await response.json();
    if (body.error?.code) return body.error;
  } catch {
    // no JSON: said below
  }
  return {
    code: "internal",
    title: `HTTP ${response.status}`,
    detail: `The answer was ${response.status} without a reason.`,
    retryable: response.status === 429 || response.status >= 500,
  };
}
