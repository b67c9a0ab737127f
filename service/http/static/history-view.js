/** The view of an owner's history: how full it is, and what was summarised or fell out of it. */

import { get, token } from "./api.js";
import { el, fact } from "./dom.js";
import { count, dayAndClock, number, outcomesInWords, shortId, words } from "./format.js";
import { decided } from "./ledger.js";
import { empty, failed, loading, redacted } from "./notices.js";
import { linkToBuild } from "./router.js";
import { fill, saidRow, says, searchField } from "./said.js";
import { nothingFound } from "./search.js";

/** Messages that are listed at first. */
const FEW = 20;

/** Return the view of an owner's history; `builds` are those of the list. */
export function historyView({ owner, builds }) {
  const results = el("div", { class: "history" }, loading("the history"));
  const load = async (talk = "") => {
    try {
      const scope = talk ? `?conversation_id=${encodeURIComponent(talk)}` : "";
      const [status, timeline, said, listed] = await Promise.all([
        get("/v1/history", { owner }),
        get(`/v1/timeline${scope}`, { owner }),
        get(`/v1/messages${scope}`, { owner }),
        builds(),
      ]);
      const choice = conversations(listed, talk, load);
      const chosen = talk ? listed.filter((each) => each.conversation_id === talk) : listed;
      const newest = chosen.find(({ refusal }) => !refusal);
      const build = newest && (await get(`/v1/builds/${newest.build_id}`, { owner }));
      const messages = messageList(said, build, owner);
      results.replaceChildren(
        ...shown({ status, timeline, messages, builds: chosen, owner, choice }),
      );
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

function shown({ status, timeline, messages, builds, owner, choice }) {
  const entries = [
    ...timeline.summaries.map(summaryEntry),
    ...timeline.departures.map((each) => departureEntry(each, owner)),
    ...builds.map((each) => buildEntry(each, owner)),
  ].sort((one, other) => other.at - one.at);
  return [
    widget(status.model, owner),
    figures(status),
    el("div", { class: "title" }, el("h3", {}, "Messages"), choice),
    messages,
    el("h3", {}, "What happened"),
    timeline.content === "redacted" && timeline.summaries.length ? redacted() : "",
    entries.length
      ? el("ol", { class: "plain timeline" }, entries.map(({ node }) => node))
      : empty("Nothing yet", "Builds, summaries and rows that fall out show up here."),
    hints(status, timeline),
  ];
}

/** Return the messages, newest first, each with its outcome in the newest build. */
function messageList({ messages, older, content }, build, owner) {
  if (!messages.length) return el("p", { class: "soft" }, "No messages yet.");
  const decisions = new Map(
    (build ? decided(build, messages) : []).flatMap((each) =>
      each.message_ids.map((id) => [id, each]),
    ),
  );
  const results = el("div");
  const status = el("p", { class: "soft", role: "status" });
  const show = (terms) => {
    const found = messages.filter((each) => says(terms, each.id, each));
    const rows = found.map((message) => () => {
      const { id } = message;
      return saidRow({ id, message, decision: decisions.get(id) ?? null, badge: true });
    });
    const list = el("ol", { class: "plain" });
    status.textContent = terms.length
      ? `${number(found.length)} of ${count(messages.length, "message")}`
      : count(messages.length, "message");
    results.replaceChildren(...(found.length ? [list, fill(list, rows, FEW)] : [nothingFound("message")]));
  };
  show([]);
  const link = build && linkToBuild(build.summary.build_id, owner, "ledger");
  return el(
    "section",
    { class: "ledger" },
    el("div", { class: "filters" }, searchField(content, show), status),
    build &&
      el("p", { class: "soft" }, "What became of each in the newest build, ", el("a", { href: link }, shortId(build.summary.build_id)), "."),
    results,
    older > 0 && el("p", { class: "soft" }, `${count(older, "older message")} not listed.`),
  );
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
    fact("Pruned by hand", number(status.pruned)),
    fact("Fell out of a context", number(status.fallen)),
    fact("In the archive", number(status.archived)),
  );
}

function buildEntry(summary, owner) {
  const { build_id: id, at, total, available, outcomes, refusal } = summary;
  if (refusal) {
    const numbers = total === null ? "" : `: ${number(total)} tokens for ${number(available)}`;
    const link = el("a", { href: linkToBuild(id, owner) }, `Refused (${words(refusal.code)})`);
    return entry(at, "refusal", [link, numbers]);
  }
  const what = outcomesInWords(outcomes);
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
