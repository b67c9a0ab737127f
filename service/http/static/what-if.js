/** A build with another budget, model or strategy, compared with the original; it is not stored. */

import { post } from "./api.js";
import { comparison } from "./comparison.js";
import { el } from "./dom.js";
import { candidates, count, number, signed } from "./format.js";
import { knownMessages } from "./ledger.js";
import { failed, loading } from "./notices.js";
import { STRATEGIES } from "./strategies.js";
import { widthOf } from "./token-bar.js";

/** Milliseconds to wait after a change before a request is sent. */
const REST = 250;
const LAYOUTS = ["tagged", "chat"];
/** The least value of the option memory_tokens. */
const LEAST_MEMORY = 64;

/** Return the form of wishes for a build, and below it what would come of them. */
export function whatIf(build, owner) {
  const results = el("div", { class: "results", "aria-live": "off" });
  const status = el("p", { class: "conclusion", role: "status" });
  const ask = asking(build, owner, results, status);
  const wishes = {};
  const invalid = new Set();
  // null is the build's own value; undefined is no valid one
  const wish = (name, value) => {
    if (value === undefined) invalid.add(name);
    else invalid.delete(name);
    if (value === null || value === undefined) delete wishes[name];
    else wishes[name] = value;
    ask({ ...wishes }, invalid.size > 0);
  };
  status.textContent = "Change something: nothing is stored, recorded or sent.";
  return el(
    "section",
    { class: "what-if" },
    el(
      "form",
      { class: "wishes", onsubmit: (event) => event.preventDefault() },
      budget(build.usage, wish),
      model(build.summary.model, wish),
      strategy(build.strategy.name, wish),
      memory(build.memory_tokens, wish),
      layout(build.layout, wish),
    ),
    status,
    results,
  );
}

function asking(build, owner, results, status) {
  let timer = 0;
  let running = null;
  let known = null;
  return (wishes, isInvalid) => {
    clearTimeout(timer);
    running?.abort();
    if (isInvalid || !Object.keys(wishes).length) {
      status.textContent = isInvalid ? "A field has no valid value." : "As it was.";
      results.replaceChildren();
      return;
    }
    timer = setTimeout(async () => {
      running = new AbortController();
      const { signal } = running;
      if (!results.children.length) results.replaceChildren(loading("what would be"));
      const path = `/v1/builds/${build.summary.build_id}/what-if`;
      try {
        known ??= knownMessages(build, owner);
        const found = await post(path, wishes, { owner, signal });
        const messages = await known;
        if (signal.aborted) return;
        const limit = wishes.max_tokens ?? build.usage.budget;
        status.textContent = conclusion(build, found.build, limit);
        results.replaceChildren(outcome(build, found, messages));
      } catch (error) {
        if (error.name === "AbortError") return;
        status.textContent = "It can't be built like that.";
        results.replaceChildren(failed(error));
      }
    }, REST);
  };
}

function conclusion(then, now, limit) {
  const { outcomes } = now.summary;
  const all = candidates(outcomes);
  const more = outcomes.kept - then.summary.outcomes.kept;
  const tokens = signed(now.usage.total - then.usage.total);
  const change = more
    ? `${count(Math.abs(more), "message")} ${more > 0 ? "more" : "fewer"} would be kept`
    : "The same number of messages would be kept";
  const read = (found) => candidates(found) - (found.not_read ?? 0);
  const history = `Messages read now: ${number(read(outcomes))} of ${number(all)}`;
  const before = `; the build had read ${number(read(then.summary.outcomes))}.`;
  // another model has another limit, unless the request or the settings have one
  const given = now.usage.budget;
  const applied = given === limit ? "" : ` The token limit would be ${number(given)}.`;
  return `${change} (${number(outcomes.kept)} of ${number(all)}), ${tokens} tokens.${applied} ${history}${before}`;
}

function outcome(then, { build: now, comparison: found }, messages) {
  const scale = Math.max(widthOf(then.usage), widthOf(now.usage));
  const bar = (name, { usage }, legend) => {
    const made = document.createElement("token-bar");
    made.show(usage, { scale, legend });
    return el("div", { class: "beside" }, el("span", { class: "soft" }, name), made);
  };
  return el(
    "div",
    {},
    bar("As it was", then, false),
    bar("As it would be", now, true),
    comparison(found, ["As it was", "As it would be"], [
      { build: then, messages },
      { build: now, messages },
    ]),
  );
}

function budget(usage, wish) {
  const step = 10 ** Math.max(Math.floor(Math.log10(usage.budget)) - 2, 0);
  const least = Math.max(Math.ceil(usage.budget / 20 / step) * step, step);
  const common = { min: least, value: usage.budget };
  const most = Math.ceil((usage.budget * 2) / step) * step;
  const range = el("input", { ...common, type: "range", max: most, step, id: "wish-budget" });
  const exact = el("input", {
    type: "number",
    min: 1,
    value: usage.budget,
    "aria-label": "Token limit, as a number",
  });
  // a slider snaps to its steps, so that the build's own limit has to be set apart
  range.value = usage.budget;
  const changed = (from, to) => () => {
    if (!from.validity.valid || !from.value) {
      wish("max_tokens", undefined);
      return;
    }
    to.value = from.value;
    const value = Number(from.value);
    wish("max_tokens", value === usage.budget ? null : value);
  };
  range.addEventListener("input", changed(range, exact));
  exact.addEventListener("input", changed(exact, range));
  return el(
    "div",
    { class: "field grow" },
    el("label", { for: "wish-budget" }, "Token limit"),
    el("div", { class: "pair" }, range, exact),
  );
}

/** A model's name is sent when it is complete: its beginning may be another model's name. */
function model(own, wish) {
  const input = el("input", {
    type: "text",
    maxlength: 128,
    placeholder: own ?? "none named",
    autocomplete: "off",
    spellcheck: "false",
  });
  input.addEventListener("change", () => {
    const name = input.value.trim();
    wish("model", name && name !== own ? name : null);
  });
  return el("label", { class: "field" }, el("span", {}, "Model"), input);
}

function strategy(own, wish) {
  const names = STRATEGIES.includes(own) ? STRATEGIES : [own, ...STRATEGIES];
  return choice("Strategy", names, own, (name) => wish("strategy", name === own ? null : name));
}

function memory(own, wish) {
  const wrong = el("span", { class: "wrong", "aria-live": "polite" });
  const input = el("input", { type: "number", min: LEAST_MEMORY, placeholder: own ?? "no limit" });
  input.addEventListener("input", () => {
    const { valid } = input.validity;
    input.ariaInvalid = String(!valid);
    wrong.textContent = valid ? "" : `A whole number of at least ${LEAST_MEMORY}`;
    const value = input.value ? Number(input.value) : own;
    if (!valid) wish("memory_tokens", undefined);
    else wish("memory_tokens", value === own ? null : value);
  });
  return el("label", { class: "field" }, el("span", {}, "Tokens for history"), input, wrong);
}

function layout(own, wish) {
  return choice("Layout", LAYOUTS, own, (name) => wish("layout", name === own ? null : name));
}

function choice(label, names, chosen, onchange) {
  const options = names.map((name) =>
    el("option", { value: name, selected: name === chosen }, name),
  );
  const select = el("select", { onchange: ({ target }) => onchange(target.value) }, options);
  return el("label", { class: "field" }, el("span", {}, label), select);
}
