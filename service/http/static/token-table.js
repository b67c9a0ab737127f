/** The token bar as a table: the same parts, as figures. */

import { partsOf } from "./blocks.js";
import { cell, el, table } from "./dom.js";
import { number, percent } from "./format.js";
import { swatch } from "./swatch.js";

/** Return the table of a usage; pointing at a row highlights its part in the bar. */
export function tokenTable(usage, bar) {
  const rows = partsOf(usage).map((part) =>
    el(
      "tr",
      { onpointerenter: () => bar.point(part.tag), onpointerleave: () => bar.point(null) },
      cell([swatch(part), part.label, tagOf(part)], { heading: true }),
      cell(part.about, { class: "soft wide" }),
      cell(number(part.tokens), { numeric: true }),
      cell(percent(part.tokens, usage.budget), { numeric: true }),
    ),
  );
  return table({
    caption: "Tokens by block",
    columns: [
      { name: "Part" },
      { name: "What it is" },
      { name: "Tokens", numeric: true },
      { name: "Of the window", numeric: true },
    ],
    rows: [...rows, ...sums(usage)],
    kind: "tokens",
  });
}

function tagOf({ tag, label }) {
  return tag === label || tag === "free" || tag === "reserve" || tag === "tools"
    ? null
    : el("code", { class: "tag" }, tag);
}

function sums(usage) {
  const lines = [
    ["Sent", "All blocks and tool definitions", usage.total],
    ["Stays the same", "The beginning that providers can cache", usage.cacheable_prefix],
    ["Window", "What the model or the request allows", usage.budget],
  ];
  return lines.map(([name, about, tokens]) =>
    el(
      "tr",
      { class: "sum" },
      cell(name, { heading: true }),
      cell(about, { class: "soft wide" }),
      cell(number(tokens), { numeric: true }),
      cell(percent(tokens, usage.budget), { numeric: true }),
    ),
  );
}
