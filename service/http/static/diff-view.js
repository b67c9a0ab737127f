/** The view of two builds of an owner. */

import { get } from "./api.js";
import { comparison } from "./comparison.js";
import { el, fact } from "./dom.js";
import { dayAndClock, shortId } from "./format.js";
import { knownMessages } from "./ledger.js";
import { failed, loading } from "./notices.js";
import { linkToBuild, linkToDiff } from "./router.js";

/** Characters of a question that are shown. */
const SHOWN_CHARACTERS = 300;

/** Return the view of two builds, which are requested at once. */
export function diffView({ a, b, owner }) {
  const results = el("div", { class: "view" }, loading("both builds"));
  const load = async () => {
    try {
      const path = `/v1/builds/${encodeURIComponent(a)}/diff/${encodeURIComponent(b)}`;
      const [found, ...sides] = await Promise.all([
        get(path, { owner }),
        ...[a, b].map((id) => sideOf(id, owner)),
      ]);
      const [one, other] = sides.map(({ build }) => build.summary);
      results.replaceChildren(
        el("dl", { class: "facts" }, side("From", one, owner), side("To", other, owner)),
        comparison(found, [shortId(a), shortId(b)], sides),
      );
    } catch (error) {
      results.replaceChildren(failed(error, load));
    }
  };
  load();
  return el(
    "article",
    { class: "view" },
    el(
      "header",
      { class: "title" },
      el("h2", { tabindex: "-1" }, "Two builds, side by side"),
      el("a", { class: "button", href: linkToDiff(b, a, owner) }, "The other way round"),
    ),
    results,
  );
}

/** Request a build, and the messages that it could choose from. */
async function sideOf(id, owner) {
  const build = await get(`/v1/builds/${encodeURIComponent(id)}`, { owner });
  return { build, messages: await knownMessages(build, owner) };
}

function side(term, { build_id: id, question, at, strategy, model }, owner) {
  const link = el("a", { href: linkToBuild(id, owner) }, el("code", { class: "id" }, id));
  const time = el("time", { datetime: at }, dayAndClock(at));
  return fact(
    term,
    question && el("p", { class: "question", dir: "auto" }, question.slice(0, SHOWN_CHARACTERS)),
    el("p", {}, time, ` · ${[strategy, model].filter(Boolean).join(" · ")}`),
    link,
  );
}
