/** Numbers, times and names as the page shows them. */

const NUMBER = new Intl.NumberFormat("en");
// times as the reader's browser writes them, and as the widget does
const CLOCK = new Intl.DateTimeFormat(undefined, { timeStyle: "medium" });
const DAY_AND_CLOCK = new Intl.DateTimeFormat(undefined, {
  dateStyle: "medium",
  timeStyle: "short",
});

/** Return a whole number with separators, or a dash for null. */
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

/** Return a score to one digit, without the sign of a zero. */
export function score(value) {
  return value === null || value === undefined ? "–" : (Math.round(value * 10) / 10 + 0).toFixed(1);
}

/** Return how many messages of a build the model doesn't get: dropped ones and unread ones. */
export function leftOut({ dropped = 0, not_read: unread = 0 }) {
  return dropped + unread;
}

/** Return how many messages a build had to choose from. */
export function candidates(outcomes) {
  return Object.values(outcomes).reduce((sum, size) => sum + size, 0);
}

/** Return what became of a build's messages, in words, with all that are left out as one number. */
export function outcomesInWords(outcomes) {
  const { dropped, not_read: unread = 0, ...others } = outcomes;
  const named = Object.entries(others).map(([outcome, size]) => `${number(size)} ${words(outcome)}`);
  const parts = unread ? ` (${number(dropped)} dropped, ${number(unread)} not read)` : "";
  return [...named, `${number(dropped + unread)} left out${parts}`].join(", ");
}

/** Return a code as words: `not_read` is "not read". */
export function words(code) {
  return code.replaceAll("_", " ");
}
