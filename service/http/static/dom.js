/** Make elements; whatever comes from the API becomes text, never markup. */

/**
 * Return an element. `properties` are attributes; a function under `onclick` and the like becomes a
 * listener, `false` and null omit an attribute, and true sets it without a value.
 */
export function el(tag, properties = {}, ...children) {
  const made = document.createElement(tag);
  for (const [name, value] of Object.entries(properties)) {
    if (value === null || value === undefined || value === false) continue;
    if (typeof value === "function") made.addEventListener(name.replace(/^on/, ""), value);
    else made.setAttribute(name, value === true ? "" : String(value));
  }
  made.append(...children.flat().filter((child) => child || child === 0));
  return made;
}

/** Rows of a table that are drawn at first: thousands would block the page. */
const MOST_ROWS = 300;

/** Return a table with a caption for screen readers. */
export function table({ caption, columns, rows, kind = "" }) {
  const head = columns.map(({ name, numeric }) =>
    el("th", { scope: "col", class: numeric ? "number" : null }, name),
  );
  const body = el("tbody", {}, rows.slice(0, MOST_ROWS));
  return el(
    "div",
    { class: "scroller", tabindex: "0", role: "region", "aria-label": caption },
    el(
      "table",
      { class: kind || null },
      el("caption", { class: "unseen" }, caption),
      el("thead", {}, el("tr", {}, head)),
      body,
    ),
    rows.length > MOST_ROWS && others(rows.slice(MOST_ROWS), body),
  );
}

function others(rows, body) {
  const onclick = ({ target }) => {
    body.append(...rows);
    target.remove();
  };
  const text = `Show ${rows.length} more rows`;
  return el("button", { type: "button", class: "others", onclick }, text);
}

/** Return a cell; numeric ones are aligned. */
export function cell(content, { numeric = false, heading = false, ...more } = {}) {
  const properties = { ...more, class: numeric ? "number" : (more.class ?? null) };
  return el(heading ? "th" : "td", heading ? { ...properties, scope: "row" } : properties, content);
}

/** Return a term with its description, for a description list. */
export function fact(term, ...content) {
  return el("div", { class: "fact" }, el("dt", {}, term), el("dd", {}, ...content));
}
