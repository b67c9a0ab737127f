/**
 * <token-bar>: a context's window as one bar, each block in its colour, above its table.
 *
 * Where the window is mostly free, a second bar shows only what is sent, which would be too small.
 */

import { partsOf } from "./blocks.js";
import { el } from "./dom.js";
import { number, percent } from "./format.js";
import { swatch } from "./swatch.js";

/** The share of the window below which what is sent gets its own bar. */
const SMALL = 0.25;
const MAGNIFIED = "What is sent, magnified";

class TokenBar extends HTMLElement {
  /**
   * Show a usage; the whole bar is as long as `scale` tokens, else as the window. Without a legend
   * it is below another bar that has one.
   */
  show(usage, { scale = widthOf(usage), legend = true } = {}) {
    const over = Math.max(usage.total - usage.available, 0);
    const parts = partsOf(usage);
    this.setAttribute("role", "img");
    this.setAttribute("aria-label", described(usage, parts, over));
    this.dataset.over = over > 0;
    const sent = parts.filter(({ tag }) => tag !== "free" && tag !== "reserve");
    const magnified = usage.total < scale * SMALL;
    this.replaceChildren(
      strip(parts, scale),
      ...(magnified ? [el("span", { class: "soft" }, MAGNIFIED), strip(sent, usage.total)] : []),
      ...(legend ? [legendOf(parts)] : []),
    );
  }

  /** Highlight the part with this tag, or none. */
  point(tag) {
    this.toggleAttribute("data-pointing", Boolean(tag));
    for (const each of this.querySelectorAll(".segment")) {
      each.toggleAttribute("data-on", each.dataset.tag === tag);
    }
  }
}

/** Return the tokens that a bar has to hold: all of the window, and what goes beyond it. */
export function widthOf(usage) {
  return Math.max(usage.budget, usage.total + usage.reserve);
}

function strip(parts, scale) {
  const rest = scale - parts.reduce((sum, { tokens }) => sum + tokens, 0);
  const segments = parts.map((part) => segment(part, scale));
  return el("span", { class: "strip" }, segments, rest > 0 ? [space(rest)] : []);
}

function segment({ tag, label, color, tokens }, scale) {
  const kind = tag === "free" || tag === "reserve" ? tag : "block";
  const title = `${label}: ${number(tokens)} tokens (${percent(tokens, scale)})`;
  const made = el("span", { class: `segment ${kind}`, "data-tag": tag, title });
  made.append(el("span", { class: "label" }, label));
  // the policy forbids style attributes, not this
  made.style.flexGrow = tokens;
  made.style.setProperty("--color", color);
  return made;
}

function legendOf(parts) {
  const entries = parts.map(({ tag, label, color, tokens }) =>
    el(
      "span",
      { class: "entry" },
      swatch({ tag, color }),
      `${label} `,
      el("span", { class: "soft" }, number(tokens)),
    ),
  );
  return el("span", { class: "legend" }, entries);
}

function space(tokens) {
  const made = el("span", { class: "segment beyond" });
  made.style.flexGrow = tokens;
  return made;
}

function described(usage, parts, over) {
  const listed = parts.map(({ label, tokens }) => `${label} ${number(tokens)}`).join(", ");
  const limit = over ? `, ${number(over)} over the limit` : "";
  return `${number(usage.total)} of ${number(usage.available)} tokens${limit}. ${listed}.`;
}

customElements.define("token-bar", TokenBar);
