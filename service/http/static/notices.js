/** Notices in place of content: loading, empty, or an error with advice. */

import { el } from "./dom.js";

/** What to do about an error, by its code. */
export const ADVICE = {
  budget_exceeded:
    "Raise max_tokens, lower reserve_tokens, offer fewer tools, or shorten the input. " +
    "If CORE_IDENTITY is the largest part, shorten the system message with " +
    "prompts.identity: plain or prompts.identity_file.",
  deadline_exceeded: "Retry with a later deadline; if it happens often, add workers.",
  unauthorized: "This worker needs a token: enter the one of the setting http.token above.",
  forbidden: "Requests from here are not allowed: open the page at the worker's own address.",
  misdirected: "Open the page under a name of the setting http.allowed_hosts.",
  not_found:
    "Builds can be seen for the time of reports.ttl_seconds, and by their own owner only.",
  not_replayable:
    "The request of this build is not known any more. The setting http.content keeps requests.",
  overloaded: "The worker is busy. Try again in a moment.",
  unreachable: "Start the worker, or wait for it: the page reconnects by itself.",
  history_unavailable: "The store is unavailable. Try again when it is back.",
  bus_unavailable: "The bus is unavailable. Try again when it is back.",
  internal: "The worker's log says more. Try again in a moment.",
};

/** Return the notice that something is being loaded. */
export function loading(what) {
  return el("p", { class: "notice loading", role: "status" }, `Loading ${what} …`);
}

/** Return the notice that there is nothing: a heading, and advice. */
export function empty(title, ...advice) {
  return el(
    "div",
    { class: "notice" },
    el("h2", {}, title),
    ...advice.map((line) => el("p", {}, line)),
  );
}

/** Return the notice of an error, with a button to try again if `again` is given. */
export function failed(error, again = null) {
  const advice = ADVICE[error.code] ?? null;
  // retryable errors are retried automatically when the worker is reachable again
  const kind = error.retryable ? "again" : null;
  return el(
    "div",
    { class: "notice error", role: "alert" },
    el("h2", {}, error.title || "Something went wrong on this page"),
    el("p", {}, error.detail ?? error.message),
    advice && el("p", {}, advice),
    again && el("button", { type: "button", class: kind, onclick: again }, "Try again"),
  );
}

/** Return why words are not shown, and what would show them. */
export function redacted() {
  return el(
    "p",
    { class: "notice slim", role: "note" },
    el("strong", {}, "Texts are redacted. "),
    "Set ",
    el("code", {}, "http.content: full"),
    " on the worker (or ",
    el("code", {}, "CTXB_HTTP__CONTENT=full"),
    ") to show what people said; counts, ids and reasons are shown in any case.",
  );
}
