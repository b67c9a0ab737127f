/** Two builds side by side: tokens, decisions and words that differ. */

import { blockOf } from "./blocks.js";
import { cell, el, table } from "./dom.js";
import { number, signed, words } from "./format.js";
import { redacted } from "./notices.js";
import { beginning, outcomeBadge } from "./said.js";
import { swatch } from "./swatch.js";

const SUMS = {
  total: ["Sent", "total"],
  cacheable_prefix: ["Stays the same", "cacheable prefix"],
};

/**
 * Return what differs between two builds, under these names for them. `sides` are the two, each as
 * `{build, messages}` with the messages of history that it could choose from, newest first.
 */
export function comparison(found, names, sides) {
  return el(
    "div",
    { class: "comparison" },
    headline(found),
    outcomeChanges(found.outcomes, names),
    tokenChanges(found.tokens, names),
    found.settings.length > 0 && settingChanges(found.settings, names),
    part("Decisions that differ", found.history, (changes) => historyChanges(changes, names, sides)),
    part("Messages that differ", found.messages, (changes) => messageChanges(changes, found)),
    toolChanges(found.tools),
    warnings(found, names),
  );
}

function headline({ identical, messages, tools, settings }) {
  if (identical) {
    return el("p", { class: "conclusion same" }, "Both send the same messages and tools.");
  }
  const places = messages.flatMap(({ a, b }) => [a, b]).filter((place) => place !== null);
  const first = places.length ? Math.min(...places) : 0;
  const named = tools.added.length + tools.removed.length + tools.changed.length;
  // a provider reads the tools before the messages
  const text = named
    ? "The tools differ, so no cache of one can be used for the other."
    : first === 0
      ? "They differ from the first message on, so no cache of one can be used for the other."
      : `Up to message ${first} they are the same${cached(settings)}.`;
  return el("p", { class: "conclusion" }, text);
}

/** Return whether a provider's cache covers the common part: each model has its own. */
function cached(settings) {
  return settings.some(({ name }) => name === "model")
    ? ", but for other models, which share no cache"
    : ": a provider's cache holds up to there";
}

/** Return a table of the messages' outcomes; all that are left out are one number. */
function outcomeChanges(outcomes, [one, other]) {
  const of = (names) => (side) =>
    outcomes.filter(({ name }) => names.includes(name)).reduce((sum, each) => sum + each[side], 0);
  const left = of(["dropped", "not_read"]);
  const lines = [
    ...outcomes
      .filter(({ name }) => !["dropped", "not_read"].includes(name))
      .map(({ name, a, b }) => [words(name), a, b, ""]),
    ["left out", left("a"), left("b"), "sum"],
    ...outcomes
      .filter(({ name }) => name === "not_read")
      .map(({ name, a, b }) => ["of these not read", a, b, "soft"]),
  ];
  const numeric = true;
  return table({
    caption: "Messages of both builds",
    columns: [
      { name: "Messages" },
      { name: one, numeric },
      { name: other, numeric },
      { name: "Change", numeric },
    ],
    rows: lines.map(([name, a, b, kind]) =>
      el(
        "tr",
        { class: kind || null },
        cell(name, { heading: true }),
        cell(number(a), { numeric: true }),
        cell(number(b), { numeric: true }),
        cell(signed(b - a), { numeric: true }),
      ),
    ),
    kind: "tokens",
  });
}

function tokenChanges(tokens, [one, other]) {
  const rows = tokens.map(({ name, a, b }) => {
    const block = blockOf(name);
    const change = (b ?? 0) - (a ?? 0);
    const label = SUMS[name]?.[0] ?? block.label;
    const heading = [SUMS[name] ? null : swatch(block), label];
    return el(
      "tr",
      { class: SUMS[name] ? "sum" : null },
      cell(heading, { heading: true }),
      cell(number(a), { numeric: true }),
      cell(number(b), { numeric: true }),
      cell(el("span", { class: kindOf(name, change) }, signed(change)), { numeric: true }),
    );
  });
  const numeric = true;
  return table({
    caption: "Tokens of both builds",
    columns: [
      { name: "Part" },
      { name: one, numeric },
      { name: other, numeric },
      { name: "Change", numeric },
    ],
    rows,
    kind: "tokens",
  });
}

function settingChanges(changes, names) {
  const rows = changes.map(({ name, a, b }) =>
    el("tr", {}, cell(words(name), { heading: true }), cell(plain(a)), cell(plain(b))),
  );
  return el(
    "section",
    {},
    el("h3", {}, "Settings that differ"),
    table({
      caption: "Settings that differ",
      columns: [{ name: "Setting" }, { name: names[0] }, { name: names[1] }],
      rows,
    }),
  );
}

function historyChanges(changes, [one, other], sides) {
  const said = new Map(sides.flatMap(({ messages }) => messages.map((each) => [each.id, each])));
  const [absentA, absentB] = sides.map(absence);
  const rows = changes.map(({ message_id: id, a, b }) => {
    const text = beginning(said.get(id));
    const words = text && el("span", { class: "beginning", dir: "auto" }, text);
    return el(
      "tr",
      {},
      cell([words, el("code", { class: "id" }, id)].filter(Boolean), { heading: true }),
      decisionCell(a, () => absentA(id)),
      decisionCell(b, () => absentB(id)),
    );
  });
  return table({
    caption: "Decisions that differ",
    columns: [{ name: "Message" }, { name: one }, { name: other }],
    rows,
    kind: "decisions",
  });
}

/** Return a function that says what a message is to a build that has no decision on it. */
function absence({ build, messages }) {
  const { decisions, summary } = build;
  const places = new Map(messages.map(({ id }, place) => [id, place]));
  const known = decisions.flatMap(({ message_ids: ids }) => ids.map((id) => places.get(id)));
  const newest = Math.min(...known.filter((place) => place !== undefined));
  return (id) => {
    if (places.get(id) < newest) return "Newer than this build";
    if (!summary.outcomes.not_read) return "No candidate";
    // a build that left rows unread lists none of them
    return places.get(id) > newest ? "Not read" : "Not read, or newer";
  };
}

function decisionCell(decision, absent) {
  if (!decision) return cell(absent(), { class: "soft" });
  return cell([outcomeBadge(decision.decision), el("code", { class: "tag" }, decision.reason)]);
}

function messageChanges(changes, { content }) {
  return el(
    "div",
    { class: "changes" },
    content === "redacted" && redacted(),
    changes.map(messageChange),
  );
}

function messageChange({ role, block, a, b, added, removed, lines }) {
  const shown = block && blockOf(block);
  const label = (at) => (at === null ? "not sent" : `message ${at + 1}`);
  const head = [
    shown && swatch(shown),
    el("span", { class: "role" }, role),
    shown && el("span", {}, shown.label),
    el("span", { class: "soft" }, a === b ? label(a) : `${label(a)} → ${label(b)}`),
    ...(added === null ? [el("span", { class: "soft" }, "other words")] : [
      el("span", { class: "lines-added" }, `+${number(added)}`),
      el("span", { class: "lines-removed" }, `−${number(removed)}`),
      el("span", { class: "soft" }, "lines"),
    ]),
  ];
  if (!lines) return el("p", { class: "message closed" }, head);
  const open = lines.length <= 60;
  return el(
    "details",
    { class: "message", open },
    el("summary", {}, head),
    el("pre", { class: "diff", tabindex: "0" }, lines.map(line)),
  );
}

function line(text) {
  const kind = { "+": "ins", "-": "del" }[text.charAt(0)] ?? "span";
  return el(kind, { class: text.startsWith("@@") ? "hunk" : null }, `${text}\n`);
}

function toolChanges(tools) {
  const kinds = Object.entries(tools).filter(([, names]) => names.length);
  if (!kinds.length) return null;
  return el(
    "section",
    {},
    el("h3", {}, "Tools that differ"),
    el("dl", { class: "facts" }, kinds.map(([kind, names]) =>
      el("div", { class: "fact" }, el("dt", {}, kind), el("dd", {}, names.join(", "))),
    )),
  );
}

function warnings({ warnings_a: a, warnings_b: b }, [one, other]) {
  if (!a.length && !b.length) return null;
  const items = (found, name) =>
    found.map(({ code, detail }) =>
      el("li", {}, el("code", { class: "tag" }, code), ` ${detail || "no details"} (${name} only)`),
    );
  return el(
    "section",
    {},
    el("h3", {}, "Warnings of one build only"),
    el("ul", {}, items(a, one), items(b, other)),
  );
}

function part(title, changes, show) {
  return el(
    "section",
    {},
    el("h3", {}, `${title} (${number(changes.length)})`),
    changes.length ? show(changes) : el("p", { class: "soft" }, "None."),
  );
}

/** Return whether a change costs more or less; a larger part that stays the same costs less. */
function kindOf(name, change) {
  const cost = name === "cacheable_prefix" ? -change : change;
  return cost > 0 ? "more" : cost < 0 ? "less" : "soft";
}

const plain = (value) => (typeof value === "number" ? number(value) : String(value ?? "–"));
