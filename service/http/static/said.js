/** Messages of history with their texts: searched, and opened to show each one's reason. */

import { blockOf } from "./blocks.js";
import { el, fact } from "./dom.js";
import { count, dayAndClock, number, score, words } from "./format.js";
import { hasAll, termsOf } from "./search.js";

/** Characters of a text in a closed row, which shows what fits. */
const CLOSED_CHARACTERS = 240;

const LEFT_OUT = new Set(["dropped", "filtered", "not_read", "summarized"]);

/** Return the badge of an outcome, such as `dropped`. */
export function outcomeBadge(outcome) {
  return el("span", { class: "outcome", "data-outcome": outcome }, words(outcome));
}

/** Return why, as a sentence without the outcome and the tokens. */
export function sentence(detail) {
  const why = detail.slice(detail.indexOf(": ") + 2);
  return `${why.charAt(0).toUpperCase()}${why.slice(1)}.`;
}

/** Return whether a message has all terms of a search in its words, its calls or its id. */
export function says(terms, id, message) {
  return hasAll(terms, `${message?.text ?? ""} ${message?.calls.join(" ") ?? ""} ${id}`);
}

/** Return the search field; `onsearch` gets its terms, none if it is empty. */
export function searchField(content, onsearch) {
  const input = el("input", {
    type: "search",
    placeholder: content === "full" ? "words of what was said" : "id",
    oninput: ({ target }) => onsearch(termsOf(target.value)),
  });
  return el("label", { class: "field grow" }, el("span", {}, "Find a message"), input);
}

/**
 * Return the row of a message, closed: its words, or its id where they aren't shown. Opened, it has
 * the whole text and all of the decision. `decision` may be null, and `badge` shows its outcome.
 */
export function saidRow({ id, message, decision, badge = false }) {
  const summary = el(
    "summary",
    {},
    badge && decision && outcomeBadge(decision.decision),
    message && el("span", { class: "role" }, message.role),
    el("span", { class: "beginning", dir: "auto" }, beginning(message) ?? el("code", {}, id)),
    message && el("span", { class: "soft size" }, count(message.tokens, "token")),
  );
  const row = el("details", { class: "message said" }, summary);
  // thousands of rows: what is in them is made when it is wanted
  row.addEventListener("toggle", () => row.append(inside(id, message, decision)), { once: true });
  return el("li", {}, row);
}

/** Return the first words of a message, or its calls; null if its text isn't known. */
export function beginning(message) {
  if (!message || message.text === null) return null;
  const calls = message.calls.length ? `calls ${message.calls.join(", ")}` : "no text";
  return message.text.slice(0, CLOSED_CHARACTERS).replace(/\s+/g, " ").trim() || calls;
}

function inside(id, message, decision) {
  return el(
    "div",
    { class: "words" },
    decision && el("p", {}, outcomeBadge(decision.decision), ` ${sentence(decision.detail)}`),
    message?.text && el("pre", { tabindex: "0", dir: "auto" }, message.text),
    el(
      "dl",
      { class: "facts" },
      ...(decision ? decisionFacts(decision) : []),
      message && fact("Tokens of the text", number(message.tokens)),
      message?.timestamp && fact("Said", dayAndClock(message.timestamp)),
      message?.calls.length > 0 && fact("Calls", message.calls.join(", ")),
      fact("Id", el("code", { class: "id" }, id)),
    ),
  );
}

function decisionFacts(decision) {
  const { reason, block, tokens, score: own, smallest_budget: least, turn } = decision;
  const cost = LEFT_OUT.has(decision.decision) ? "Tokens it would take" : "Tokens in the context";
  const others = turn > 1 ? `, with the ${count(turn - 1, "other message")} of its turn` : "";
  return [
    fact("Reason", el("code", { class: "tag" }, reason)),
    fact("Block", blockOf(block).label),
    own !== null && fact("Score", score(own)),
    tokens !== null && fact(cost, `${number(tokens)}${others}`),
    least !== null && fact("Fits from", `${number(least)} tokens for history (memory_tokens)`),
  ].filter(Boolean);
}

/** Rows that are added at a time. */
const STEP = 200;

/** Add rows to a list: `few` at first, and more by a button below. */
export function fill(list, rows, few) {
  const add = (some) => {
    list.append(...rows.splice(0, some).map((make) => make()));
    return rows.length;
  };
  if (!add(few)) return "";
  const onclick = () => {
    if (add(STEP)) button.textContent = more(rows);
    else button.remove();
  };
  const button = el("button", { type: "button", class: "others", onclick }, more(rows));
  return button;
}

const more = (rows) => `Show ${number(rows.length)} more`;
