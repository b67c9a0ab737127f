/** Numbers, times and names as the page shows them. */

const NUMBER = new Intl.NumberFormat("en");
// times as the reader's browser writes them, and as the widget does
const CLOCK = new Intl.DateTimeFormat(undefined, { timeStyle: "medium" });
const DAY_AND_CLOCK = new Intl.DateTimeFormat(undefined, {
  dateStyle: "medium",
  timeStyle: "short",
});

/** Return a whole number with separators, or a dash where there is none. */
export function number(value) {
  return value === null || value === undefined ? "–" : NUMBER.format(value);
}

/** Return a difference with its sign; the minus is as wide as the plus. */
export function signed(value) {
  if (!value) return "±0";
  return `${value > 0 ? "+" : "−"}${NUMBER.format(Math.abs(value))}`;
}

/** Return a share of a whole in percent. */
export function percent(part, whole) {
  return whole ? `${((part / whole) * 100).toFixed(1)} %` : "–";
}

/** Return a count with its noun. */
export function count(value, one, many = `${one}s`) {
  return `${number(value)} ${value === 1 ? one : many}`;
}

/** Return the time of day of a moment. */
export function clock(moment) {
  return CLOCK.format(new Date(moment));
}

/** Return the day and the time of a moment. */
export function dayAndClock(moment) {
  return DAY_AND_CLOCK.format(new Date(moment));
}

/** Return milliseconds to three digits. */
export function milliseconds(value) {
  return `${Number(value.toPrecision(3))} ms`;
}

/** Return the beginning of a build's id, which distinguishes the builds of a list. */
export function shortId(buildId) {
  return buildId.slice(0, 12);
}

/** Return a code as words: `not_read` is "not read". */
export function words(code) {
  return code.replaceAll("_", " ");
}
