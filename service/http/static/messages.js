/** The messages of a context as the model gets them. */

import { blockOf } from "./blocks.js";
import { el } from "./dom.js";
import { count, number } from "./format.js";
import { empty, redacted } from "./notices.js";
import { swatch } from "./swatch.js";

/** Characters up to which a message is open at once. */
const SHORT = 2_500;

/** Return the messages of a build, each with its words where they are shown. */
export function messages({ messages: sent, tools, content, unavailable }) {
  const items = sent.map((each, place) => el("li", {}, message(each, place)));
  return el(
    "section",
    { class: "messages" },
    content === "redacted" && redacted(),
    unavailable && empty("The texts of this build were not kept", unavailable),
    el("ol", { class: "plain" }, items),
    el("h3", {}, "Tools"),
    tools.length
      ? el("ul", { class: "names" }, tools.map(tool))
      : el("p", { class: "soft" }, "No tools were offered."),
  );
}

function tool({ name, tokens }) {
  return el("li", {}, el("code", {}, name), tokens !== null && el("span", { class: "soft" }, ` ${count(tokens, "token")}`));
}

function message(shown, place) {
  // the system message opens with the identity, in either layout, and has no tag
  const tag = shown.block ?? (shown.role === "system" ? "CORE_IDENTITY" : null);
  const block = tag && blockOf(tag);
  const { characters, tokens } = shown;
  const size = tokens === null ? count(characters, "character") : count(tokens, "token");
  const head = [
    el("span", { class: "place" }, number(place + 1)),
    block && swatch(block),
    el("span", { class: "role" }, shown.role),
    block && el("span", {}, block.label),
    el("span", { class: "soft size" }, size),
  ];
  if (!shown.message) return el("p", { class: "message closed" }, head);
  return el(
    "details",
    { class: "message", open: (shown.characters ?? 0) <= SHORT },
    el("summary", {}, head),
    body(shown.message),
  );
}

function body({ role: _role, content, ...rest }) {
  const more = Object.entries(rest).filter(([, value]) => value !== null && value !== undefined);
  return el(
    "div",
    { class: "words" },
    content && el("pre", { tabindex: "0" }, asText(content)),
    more.map(([name, value]) => [
      el("h4", {}, name),
      el("pre", { tabindex: "0" }, asText(value)),
    ]).flat(),
  );
}

const asText = (value) => (typeof value === "string" ? value : JSON.stringify(value, null, 2));
