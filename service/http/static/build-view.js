/** The view of one build: its figures, its bar, and a tab for each look at it. */

import { get } from "./api.js";
import { el, fact } from "./dom.js";
import {
  candidates,
  count,
  dayAndClock,
  leftOut,
  milliseconds,
  number,
  percent,
  shortId,
  words,
} from "./format.js";
import { ledger } from "./ledger.js";
import { messages } from "./messages.js";
import { ADVICE, empty, failed, loading } from "./notices.js";
import { rawForms } from "./raw-forms.js";
import { linkTo, linkToDiff } from "./router.js";
import { tabs } from "./tabs.js";
import "./token-bar.js";
import { tokenTable } from "./token-table.js";
import { whatIf } from "./what-if.js";

const FORGOTTEN = "A worker lists refused requests for the time of reports.ttl_seconds.";
const QUOTED = "The details may quote the request, so only its sender gets them.";
const NAMES = {
  tokens: "Tokens",
  ledger: "Kept and left out",
  messages: "Messages",
  raw: "Raw",
  "what-if": "What if",
};

/**
 * Return the view of a build, which is requested at once. `before(id)` returns the id of the build
 * before it, and `onchoose(tab)` is called when a tab is chosen.
 */
export function buildView({ id, owner, tab, before, onchoose }) {
  // the heading may have the focus while the rest comes
  const head = heading(id);
  const body = el("div", { class: "view" }, loading("the build"));
  const view = el("article", { class: "view" }, head, body);
  let chosen = tab;
  view.choose = (name) => (chosen = name);
  const load = async () => {
    try {
      const build = await get(`/v1/builds/${encodeURIComponent(id)}`, { owner });
      const bar = document.createElement("token-bar");
      bar.show(build.usage);
      const panel = looks(build, bar, { owner, chosen, onchoose });
      view.choose = panel.choose;
      head.append(compareWithBefore(id, owner, before));
      body.replaceChildren(
        figures(build.summary, build.usage),
        bar,
        ...notes(build),
        panel,
        origin(build),
      );
    } catch (error) {
      body.replaceChildren(failed(error, load));
    }
  };
  load();
  return view;
}

function heading(id) {
  const title = el("h2", { tabindex: "-1" }, "Build ", el("code", {}, shortId(id)));
  return el("header", { class: "title" }, title);
}

function looks(build, bar, { owner, chosen, onchoose }) {
  const show = {
    tokens: () => tokenTable(build.usage, bar),
    ledger: () => ledger(build, owner),
    messages: () => messages(build),
    raw: () => rawForms(build, owner),
    "what-if": () => whatIf(build, owner),
  };
  return tabs({
    label: "Views of the build",
    names: NAMES,
    chosen,
    show: (name) => show[name](),
    onchoose,
  });
}

function compareWithBefore(id, owner, before) {
  const place = el("span", { class: "actions" });
  before(id).then((other) => {
    if (!other) return;
    const href = linkToDiff(other, id, owner);
    place.append(el("a", { class: "button", href }, "Compare with the one before"));
  });
  return place;
}

function figures({ outcomes }, usage) {
  const prefix = percent(usage.cacheable_prefix, usage.total);
  return el(
    "dl",
    { class: "figures" },
    figure("Tokens", number(usage.total), `of ${number(usage.available)} available`),
    figure("Used", percent(usage.total, usage.available), usage.exact ? "exact" : "estimated"),
    figure("Kept", number(outcomes.kept), `of ${count(candidates(outcomes), "message")}`),
    figure("Left out", number(leftOut(outcomes)), parts(outcomes) || "messages"),
    ...Object.entries(outcomes)
      .filter(([outcome]) => !["kept", "dropped", "not_read"].includes(outcome))
      .map(([outcome, size]) => figure(words(outcome), number(size), "of the messages")),
    figure("Cacheable", prefix, `${number(usage.cacheable_prefix)} tokens`),
  );
}

function parts({ dropped, not_read: unread }) {
  return unread && `${number(dropped)} dropped, ${number(unread)} not read`;
}

function figure(term, value, note) {
  return el(
    "div",
    { class: "card" },
    el("dt", {}, term),
    el("dd", {}, el("strong", {}, value), " ", el("span", { class: "soft" }, note)),
  );
}

function notes({ usage, warnings }) {
  const over = usage.total - usage.available;
  return [
    ...(over > 0 ? [overLimit(over)] : []),
    ...(warnings.length ? [warned(warnings)] : []),
  ];
}

function overLimit(tokens) {
  return el(
    "p",
    { class: "notice slim error", role: "note" },
    el("strong", {}, `${count(tokens, "token")} over what is available. `),
    "Choose a strategy that leaves something out, or a larger limit.",
  );
}

function warned(warnings) {
  const items = warnings.map(({ code, detail, pointer }) =>
    el(
      "li",
      {},
      el("code", { class: "tag" }, code),
      detail && ` ${detail} `,
      pointer && el("code", { class: "id" }, pointer),
    ),
  );
  return el(
    "section",
    { class: "notice slim warning" },
    el("h3", {}, count(warnings.length, "warning")),
    el("ul", {}, items),
  );
}

function origin({ summary, usage, strategy, settings, timings }) {
  const took = Object.entries(timings).map(([name, ms]) => `${name} ${milliseconds(ms)}`);
  const parameters = Object.entries(strategy).filter(([name]) => name !== "name");
  const given = listed(parameters);
  return el(
    "footer",
    { class: "origin" },
    el("h3", {}, "Where it comes from"),
    el(
      "dl",
      { class: "facts" },
      fact("Build", el("code", { class: "id" }, summary.build_id)),
      fact("Built", el("time", { datetime: summary.at }, dayAndClock(summary.at))),
      fact("Took", took.join(", ")),
      fact("Model", summary.model ?? "none named"),
      fact("Strategy", strategy.name, given && el("span", { class: "soft" }, ` ${given}`)),
      fact("Tokenizer", `${usage.tokenizer}, ${usage.exact ? "exact" : "an estimate"}`),
      fact("Request", el("code", { class: "id" }, summary.request_id)),
      fact("Run", el("code", { class: "id" }, summary.run_id)),
      fact("Conversation", el("code", { class: "id" }, summary.conversation_id ?? "–")),
      fact("Settings", listed(Object.entries(settings)) || "all at their defaults"),
    ),
  );
}

function listed(values) {
  return values.map(([name, value]) => `${name}: ${JSON.stringify(value)}`).join(", ");
}

/** Return the view of a request that was refused; `found` is a promise of its summary in the list. */
export function refusedView(found) {
  const body = el("div", { class: "view" }, loading("the request"));
  found.then((summary) =>
    body.replaceChildren(
      ...(summary ? refused(summary) : [empty("This request is no longer listed", FORGOTTEN)]),
    ),
  );
  const title = el("h2", { tabindex: "-1" }, "Refused request");
  return el("article", { class: "view" }, el("header", { class: "title" }, title), body);
}

function refused({ refusal, at, total, available, request_id: request, run_id: run }) {
  const { code, title, detail, pointers } = refusal;
  const numbers =
    total !== null &&
    el(
      "dl",
      { class: "figures" },
      figure("Needed", number(total), "tokens"),
      figure("Available", number(available), "tokens"),
      figure("Too many", number(total - available), "tokens"),
    );
  const places = pointers.map((each) => [" ", el("code", { class: "id" }, each)]).flat();
  return [
    el(
      "div",
      { class: "notice error" },
      el("h2", {}, title),
      el("p", {}, el("code", { class: "tag" }, code), ` ${detail ?? QUOTED}`),
      places.length > 0 && el("p", {}, "In the request:", places),
      ADVICE[code] && el("p", {}, ADVICE[code]),
    ),
    numbers,
    el(
      "dl",
      { class: "facts" },
      fact("Refused", el("time", { datetime: at }, dayAndClock(at))),
      fact("Request", el("code", { class: "id" }, request)),
      fact("Run", run ? el("code", { class: "id" }, run) : "–"),
    ),
  ].filter(Boolean);
}

/** Return the link back to all builds, for narrow windows. */
export function backLink(owner) {
  return el("a", { class: "back", href: linkTo("builds", owner) }, "‹ All builds");
}
