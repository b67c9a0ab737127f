/** What became of every candidate for a context, and why: kept and left out, by their words. */

import { get } from "./api.js";
import { blockOf } from "./blocks.js";
import { el } from "./dom.js";
import { candidates, count, leftOut, number, score, words } from "./format.js";
import { failed, loading, redacted } from "./notices.js";
import { fill, outcomeBadge, saidRow, says, searchField, sentence } from "./said.js";
import { nothingFound } from "./search.js";
import { swatch } from "./swatch.js";

/** Messages of a group, and groups, that are shown at first; of a search, its messages. */
const FEW = 3;
const FOUND = 50;
const GROUPS = 100;
const LEFT_OUT = ["dropped", "not_read"];
const ORDERS = {
  out: ["Left out first", (a, b) => LEFT_OUT.includes(b.decision) - LEFT_OUT.includes(a.decision)],
  place: ["As in the context", () => 0],
  tokens: ["Most tokens first", (a, b) => (b.tokens ?? -1) - (a.tokens ?? -1)],
  score: ["Highest score first", (a, b) => (b.score ?? -Infinity) - (a.score ?? -Infinity)],
};

/** Return the ledger of a build, whose messages are requested at once. */
export function ledger(build, owner) {
  const body = el("section", { class: "ledger" }, loading("the messages"));
  const load = async () => {
    try {
      body.replaceChildren(...shown(build, await messagesOf(build, owner)));
    } catch (error) {
      // reasons don't depend on words
      const none = { messages: [], content: build.content };
      body.replaceChildren(failed(error, load), ...shown(build, none));
    }
  };
  load();
  return body;
}

/** Request the messages that a build could choose from. */
export function messagesOf({ summary }, owner) {
  return get(`/v1/messages?build=${encodeURIComponent(summary.build_id)}`, { owner });
}

/** Request the messages of a build as a list, which is empty where that fails. */
export function knownMessages(build, owner) {
  return messagesOf(build, owner).then(
    ({ messages }) => messages,
    () => [], // a comparison is whole without words
  );
}

/**
 * Return the decisions of a build, each with the ids of its messages. Unread messages are in none:
 * those of the history that are older than what was read, or in between.
 */
export function decided({ decisions }, messages) {
  const known = new Set(decisions.flatMap(({ message_ids: ids }) => ids));
  const newest = messages.findIndex(({ id }) => known.has(id));
  const unread = messages.filter(({ id }, place) => place > newest && !known.has(id));
  const each = decisions.map((decision) => {
    const { decision: outcome, message_ids: ids, count: size } = decision;
    const own = outcome === "not_read" ? unread.map(({ id }) => id).reverse() : ids;
    return { ...decision, message_ids: own, size: size ?? ids.length, turn: ids.length };
  });
  // the oldest come first, as in the context
  return each.toSorted((a, b) => (b.decision === "not_read") - (a.decision === "not_read"));
}

function shown(build, { messages, content }) {
  const said = new Map(messages.map((each) => [each.id, each]));
  const decisions = decided(build, messages);
  const chosen = { reason: "", order: "out", terms: [] };
  const results = el("div", { class: "groups" });
  const status = el("p", { class: "soft", role: "status" });
  const searched = () => chosen.terms.length > 0;
  const show = () => {
    const found = decisions
      .filter((each) => !chosen.reason || keyOf(each) === chosen.reason)
      .map((each) => (searched() ? matching(each, chosen.terms, said) : each))
      .filter(({ message_ids: ids }) => !searched() || ids.length)
      .toSorted(ORDERS[chosen.order][1]);
    const messages = count(total(found), "message");
    status.textContent = `${count(found.length, "decision")} on ${messages}`;
    const groups = neighbours(found).map((each) => () => group(each, said, searched()));
    results.replaceChildren();
    results.append(searched() && !found.length ? nothingFound("message") : fill(results, groups, GROUPS));
  };
  const change = (wish) => (Object.assign(chosen, wish), show());
  show();
  return [
    content === "redacted" ? redacted() : "",
    tally(build.summary.outcomes),
    el(
      "div",
      { class: "filters" },
      searchField(content, (terms) => change({ terms })),
      choice("Reason", reasonsOf(decisions), (reason) => change({ reason })),
      choice("Order", orders(), (order) => change({ order })),
      status,
    ),
    results,
  ];
}

function matching(decision, terms, said) {
  const ids = decision.message_ids.filter((id) => says(terms, id, said.get(id)));
  return { ...decision, message_ids: ids, size: ids.length };
}

/** Group adjacent decisions that are alike, as `ctxb build --explain` does. */
function neighbours(decisions) {
  const groups = [];
  for (const each of decisions) {
    const last = groups.at(-1)?.[0];
    const alike = last && keyOf(last) === keyOf(each) && last.block === each.block;
    if (alike) groups.at(-1).push(each);
    else groups.push([each]);
  }
  return groups;
}

function group(decisions, said, searched) {
  const [{ decision, reason, detail, block }] = decisions;
  const list = el("ol", { class: "plain" });
  const rows = decisions.flatMap((each) =>
    each.message_ids.map((id) => () => saidRow({ id, message: said.get(id), decision: each })),
  );
  const shownBlock = blockOf(block);
  return el(
    "section",
    { class: "group", "data-outcome": decision },
    el(
      "header",
      {},
      outcomeBadge(decision),
      el("h3", {}, sentence(detail), el("code", { class: "tag" }, reason)),
      el("p", { class: "soft" }, swatch(shownBlock), [shownBlock.label, ...figures(decisions)].join(" · ")),
    ),
    list,
    fill(list, rows, searched ? FOUND : FEW),
  );
}

function figures(decisions) {
  const tokens = valuesOf(decisions, "tokens");
  const sum = count(tokens.reduce((all, each) => all + each, 0), "token");
  return [
    count(total(decisions), "message"),
    tokens.length > 0 && (tokens.length < decisions.length ? `at least ${sum}` : sum),
    range("score", valuesOf(decisions, "score").map(score)),
    range("fits from", valuesOf(decisions, "smallest_budget").map(number)),
  ].filter(Boolean);
}

function valuesOf(decisions, name) {
  const found = decisions.map((each) => each[name]).filter((value) => value !== null);
  return found.toSorted((a, b) => a - b);
}

function range(name, sorted) {
  if (!sorted.length) return "";
  const ends = sorted[0] === sorted.at(-1) ? sorted[0] : `${sorted[0]} to ${sorted.at(-1)}`;
  return `${name} ${ends}`;
}

function tally(outcomes) {
  const { not_read: unread = 0 } = outcomes;
  const items = Object.entries(outcomes).map(([outcome, size]) =>
    el("li", {}, outcomeBadge(outcome), el("span", { class: "figure" }, number(size))),
  );
  const both = `${number(leftOut(outcomes))} left out of ${number(candidates(outcomes))}`;
  if (unread) items.push(el("li", { class: "soft" }, both));
  return el("ul", { class: "tally", "aria-label": "Messages by decision" }, items);
}

function reasonsOf(decisions) {
  const sizes = new Map();
  for (const each of decisions) sizes.set(keyOf(each), (sizes.get(keyOf(each)) ?? 0) + each.size);
  const found = [...sizes].map(([key, size]) => [key, `${key} (${number(size)})`]);
  return [["", `All reasons (${number(total(decisions))})`], ...found.sort()];
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
const total = (decisions) => decisions.reduce((sum, { size }) => sum + size, 0);
