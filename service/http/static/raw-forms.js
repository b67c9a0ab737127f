/** A context as bodies of providers' calls, and its account, as JSON to copy. */

import { get } from "./api.js";
import { el } from "./dom.js";
import { empty, failed, loading, redacted } from "./notices.js";
import { tabs } from "./tabs.js";

const FORMS = {
  openai: "OpenAI chat",
  openai_responses: "OpenAI Responses",
  anthropic: "Anthropic",
  gemini: "Gemini",
  account: "Account",
};

/** Return the forms of a build; each is requested when it is opened. */
export function rawForms(build, owner) {
  const panel = tabs({
    label: "Forms",
    names: FORMS,
    chosen: "openai",
    kind: "small",
    show: (form) => (form === "account" ? code(build) : asked(build, owner, form)),
  });
  return el("section", { class: "raw" }, panel);
}

function asked(build, owner, form) {
  const place = el("div", {}, loading("the form"));
  const load = async () => {
    try {
      const path = `/v1/builds/${build.summary.build_id}/raw?format=${form}`;
      const found = await get(path, { owner });
      place.replaceChildren(shown(found));
    } catch (error) {
      place.replaceChildren(failed(error, load));
    }
  };
  load();
  return place;
}

function shown({ body, content, unavailable }) {
  if (body) return code(body);
  if (content === "redacted") return redacted();
  return empty("The texts of this build were not kept", unavailable);
}

function code(value) {
  const text = JSON.stringify(value, null, 2);
  const status = el("span", { role: "status", class: "soft" });
  const copy = async () => {
    try {
      await navigator.clipboard.writeText(text);
      status.textContent = "Copied.";
    } catch {
      status.textContent = "The browser doesn't allow copying here: select the text and copy it by hand.";
    }
  };
  return el(
    "div",
    {},
    el("div", { class: "actions" }, el("button", { type: "button", onclick: copy }, "Copy"), status),
    el("pre", { tabindex: "0", role: "region", "aria-label": "JSON" }, text),
  );
}
