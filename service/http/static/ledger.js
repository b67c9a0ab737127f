/** What became of every candidate for a context, and why: kept and dropped, with reasons. */

import { blockOf } from "./blocks.js";
import { cell, el, table } from "./dom.js";
import { count, number, words } from "./format.js";
import { swatch } from "./swatch.js";

/** Ids of a row that are shown at first. */
const FEW = 3;
const ORDERS = {
  place: ["As in the context", () => 0],
  tokens: ["Most tokens first", (a, b) => (b.tokens ?? -1) - (a.tokens ?? -1)],
  score: ["Highest score first", (a, b) => (b.score ?? -Infinity) - (a.score ?? -Infinity)],
};

/** Return the ledger of a build's decisions, with a filter by reason and a choice of orders. */
export function ledger(decisions) {
  const chosen = { reason: "", order: "place" };
  const results = el("div");
  const status = el("p", { class: "soft", role: "status" });
  const show = () => {
    const shown = decisions
      .filter((each) => !chosen.reason || keyOf(each) === chosen.reason)
      .toSorted(ORDERS[chosen.order][1]);
    const messages = count(candidates(shown), "message");
    status.textContent = `${count(shown.length, "decision")} on ${messages}`;
    results.replaceChildren(decisionTable(shown));
  };
  show();
  return el(
    "section",
    { class: "ledger" },
    tally(decisions),
    el(
      "div",
      { class: "filters" },
      choice("Reason", reasonsOf(decisions), (value) => ((chosen.reason = value), show())),
      choice("Order", orders(), (value) => ((chosen.order = value), show())),
      status,
    ),
    results,
  );
}

/** Return the badge of an outcome, such as `dropped`. */
export function outcomeBadge(outcome) {
  return el("span", { class: "outcome", "data-outcome": outcome }, words(outcome));
}

function decisionTable(decisions) {
  // figures that only some strategies give
  const scored = decisions.some(({ score }) => score !== null);
  const priced = decisions.some(({ smallest_budget: least }) => least !== null);
  const columns = [
    { name: "Fate" },
    { name: "Why" },
    { name: "Block" },
    { name: "Messages" },
    ...(scored ? [{ name: "Score", numeric: true }] : []),
    { name: "Tokens", numeric: true },
    ...(priced ? [{ name: "Fits from", numeric: true }] : []),
  ];
  const rows = decisions.map((each) => decisionRow(each, scored, priced));
  return table({ caption: "Kept and dropped", columns, rows, kind: "decisions" });
}

function decisionRow(decision, scored, priced) {
  const block = blockOf(decision.block);
  return el(
    "tr",
    { "data-outcome": decision.decision },
    cell(outcomeBadge(decision.decision)),
    cell([sentence(decision.detail), el("code", { class: "tag" }, decision.reason)], {
      class: "why",
    }),
    cell([swatch(block), block.label], { class: "whole" }),
    cell(ids(decision)),
    scored && cell(decision.score === null ? "–" : decision.score.toFixed(1), { numeric: true }),
    cell(number(decision.tokens), { numeric: true }),
    priced && cell(number(decision.smallest_budget), { numeric: true }),
  );
}

/** Return why, without the outcome and the tokens, which have columns of their own. */
function sentence(detail) {
  const why = detail.slice(detail.indexOf(": ") + 2);
  return `${why.charAt(0).toUpperCase()}${why.slice(1)}.`;
}

function ids({ message_ids: found, count: unread }) {
  if (!found.length) return count(unread ?? 0, "row");
  const list = (some) => some.map((id) => el("code", { class: "id" }, id));
  if (found.length <= FEW) return list(found);
  return el(
    "details",
    { class: "ids" },
    el("summary", {}, count(found.length, "message")),
    ...list(found),
  );
}

function tally(decisions) {
  const by = new Map();
  for (const each of decisions) {
    by.set(each.decision, (by.get(each.decision) ?? 0) + sizeOf(each));
  }
  const items = [...by].map(([outcome, size]) =>
    el("li", {}, outcomeBadge(outcome), el("span", { class: "figure" }, number(size))),
  );
  return el("ul", { class: "tally", "aria-label": "Messages by decision" }, items);
}

function reasonsOf(decisions) {
  const sizes = new Map();
  for (const each of decisions) {
    sizes.set(keyOf(each), (sizes.get(keyOf(each)) ?? 0) + sizeOf(each));
  }
  const found = [...sizes].map(([key, size]) => [key, `${key} (${number(size)})`]);
  return [["", `All reasons (${number(candidates(decisions))})`], ...found.sort()];
}

function orders() {
  return Object.entries(ORDERS).map(([key, [name]]) => [key, name]);
}

function choice(label, options, onchange) {
  const made = options.map(([value, text]) => el("option", { value }, text));
  const select = el("select", { onchange: ({ target }) => onchange(target.value) }, made);
  return el("label", { class: "field" }, el("span", {}, label), select);
}

const keyOf = ({ decision, reason }) => `${words(decision)}: ${words(reason)}`;
const sizeOf = ({ message_ids: found, count: unread }) => unread ?? found.length;
const candidates = (decisions) => decisions.reduce((sum, each) => sum + sizeOf(each), 0);
