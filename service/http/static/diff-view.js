/** The view of two builds of an owner. */

import { get } from "./api.js";
import { comparison } from "./comparison.js";
import { el } from "./dom.js";
import { shortId } from "./format.js";
import { failed, loading } from "./notices.js";
import { linkToBuild, linkToDiff } from "./router.js";

/** Return the view of two builds, which are requested at once. */
export function diffView({ a, b, owner }) {
  const results = el("div", {}, loading("both builds"));
  const load = async () => {
    try {
      const path = `/v1/builds/${encodeURIComponent(a)}/diff/${encodeURIComponent(b)}`;
      results.replaceChildren(comparison(await get(path, { owner }), [shortId(a), shortId(b)]));
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
    el(
      "dl",
      { class: "facts" },
      side("From", a, owner),
      side("To", b, owner),
    ),
    results,
  );
}

function side(term, id, owner) {
  return el(
    "div",
    { class: "fact" },
    el("dt", {}, term),
    el("dd", {}, el("a", { href: linkToBuild(id, owner) }, el("code", { class: "id" }, id))),
  );
}
