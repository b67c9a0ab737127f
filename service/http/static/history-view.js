/** The view of an owner's history: how full it is, and what was summarised or fell out of it. */

import { get, token } from "./api.js";
import { el, fact } from "./dom.js";
import { count, dayAndClock, number, shortId, words } from "./format.js";
import { empty, failed, loading, redacted } from "./notices.js";
import { linkToBuild } from "./router.js";

/** Return the view of an owner's history; `builds` are those of the list. */
export function historyView({ owner, builds }) {
  const results = el("div", { class: "history" }, loading("the history"));
  const load = async (talk = "") => {
    try {
      const scope = talk ? `?conversation_id=${encodeURIComponent(talk)}` : "";
      const [status, timeline, listed] = await Promise.all([
        get("/v1/history", { owner }),
        get(`/v1/timeline${scope}`, { owner }),
        builds(),
      ]);
      const choice = conversations(listed, talk, load);
      const chosen = talk ? listed.filter((each) => each.conversation_id === talk) : listed;
      results.replaceChildren(...shown({ status, timeline, builds: chosen, owner, choice }));
    } catch (error) {
      results.replaceChildren(failed(error, () => load(talk)));
    }
  };
  load();
  const title = el("h2", { tabindex: "-1" }, "History");
  return el("article", { class: "view" }, el("header", { class: "title" }, title), results);
}

/** Return a choice of the conversations that builds were made for; none where there is none. */
function conversations(builds, chosen, onchoose) {
  const names = [...new Set(builds.map((each) => each.conversation_id).filter(Boolean))];
  if (!names.length) return "";
  const options = [["", "All of the owner's"], ...names.map((name) => [name, name])].map(
    ([value, text]) => el("option", { value, selected: value === chosen }, text),
  );
  const select = el("select", { onchange: ({ target }) => onchoose(target.value) }, options);
  return el("label", { class: "field" }, el("span", {}, "Conversation"), select);
}

function shown({ status, timeline, builds, owner, choice }) {
  const entries = [
    ...timeline.summaries.map(summaryEntry),
    ...timeline.departures.map((each) => departureEntry(each, owner)),
    ...builds.map((each) => buildEntry(each, owner)),
  ].sort((one, other) => other.at - one.at);
  return [
    widget(status.model, owner),
    figures(status),
    el("div", { class: "title" }, el("h3", {}, "What happened"), choice),
    timeline.content === "redacted" && timeline.summaries.length ? redacted() : "",
    entries.length
      ? el("ol", { class: "plain timeline" }, entries.map(({ node }) => node))
      : empty("Nothing yet", "Builds, summaries and rows that fall out show up here."),
    hints(status, timeline),
  ];
}

/** Return the widget that prunes, if the worker serves it; it uses the page's token. */
function widget(model, owner) {
  const made = el("context-manager-widget", { owner, model, theme: "inherit" });
  made.token = token.get();
  return made;
}

function figures(status) {
  return el(
    "dl",
    { class: "facts" },
    fact("Pruning is due from", `${number(status.target)} tokens`),
    fact("Pruned by hand", number(status.pruned)),
    fact("Fell out of a context", number(status.fallen)),
    fact("In the archive", number(status.archived)),
  );
}

function buildEntry(summary, owner) {
  const { build_id: id, at, total, available, kept, dropped } = summary;
  const what = dropped
    ? `${number(kept)} kept, ${number(dropped)} dropped`
    : `all ${number(kept)} kept`;
  return entry(at, "build", [
    el("a", { href: linkToBuild(id, owner) }, `Context ${shortId(id)}`),
    `: ${what}; ${number(total)} of ${number(available)} tokens`,
  ]);
}

function summaryEntry(summary) {
  const { created_at: at, rows, tokens, summarizer, first, last, text } = summary;
  const span = first && last ? `, said from ${dayAndClock(first)} to ${dayAndClock(last)}` : "";
  return entry(at, "summary", [
    el("strong", {}, `Summary of ${count(rows, "row")}`),
    ` in ${count(tokens, "token")}, made by ${summarizer}${span}`,
    summary.conversation_id && ` · conversation ${summary.conversation_id}`,
    text && el("details", {}, el("summary", {}, "Read it"), el("pre", { tabindex: "0" }, text)),
  ]);
}

function departureEntry({ build_id: id, at, reasons, ids }, owner) {
  const why = Object.entries(reasons).map(([reason, rows]) => `${words(reason)}: ${number(rows)}`);
  return entry(at, "departure", [
    el("strong", {}, `${count(ids.length, "row")} fell out`),
    ` with `,
    el("a", { href: linkToBuild(id, owner, "ledger") }, `context ${shortId(id)}`),
    ` (${why.join(", ")})`,
    el(
      "details",
      { class: "ids" },
      el("summary", {}, "Which"),
      ids.map((each) => el("code", { class: "id" }, each)),
    ),
  ]);
}

function entry(at, kind, content) {
  const time = el("time", { datetime: at }, dayAndClock(at));
  return {
    at: new Date(at).getTime(),
    node: el("li", { class: kind }, time, el("div", {}, ...content.filter(Boolean))),
  };
}

function hints(status, { archive }) {
  if (archive) return "";
  return el(
    "p",
    { class: "soft" },
    status.fallen
      ? `${count(status.fallen, "row")} fell out of contexts; when, and why, is kept where `
      : "When rows fall out of a context, and why, is kept where ",
    el("code", {}, "events.archive"),
    " is on.",
  );
}
