/** The square in a block's colour, before its name. */

import { el } from "./dom.js";

/** Return the square of a block, or of what is free or reserved. */
export function swatch({ tag, color }) {
  const made = el("span", { class: `swatch ${tag}`, "aria-hidden": "true" });
  made.style.setProperty("--color", color);
  return made;
}
