/** Places on the page as links: `#/builds/ID/ledger?owner=KEY`. The token is in none of them. */

/** The views of a build with their own link, in the order of the tabs. */
export const TABS = ["tokens", "ledger", "messages", "raw", "what-if"];

/**
 * Return where a link leads: `{view, owner, ...}` with a view of `builds`, `build`, `diff`,
 * `history` or `unknown`.
 */
export function read(hash) {
  const [path, query = ""] = hash.replace(/^#\/?/, "").split("?");
  const owner = new URLSearchParams(query).get("owner") ?? "";
  const [place = "", first, second, third] = path.split("/").map(decoded);
  if (place === "" || (place === "builds" && !first)) return { view: "builds", owner };
  if (place === "history" && !first) return { view: "history", owner };
  if (place !== "builds") return { view: "unknown", owner };
  if (second === "diff" && third) return { view: "diff", owner, a: first, b: third };
  const tab = second ?? TABS[0];
  return TABS.includes(tab) ? { view: "build", owner, id: first, tab } : { view: "unknown", owner };
}

/** Return the link to an owner's builds, or to a view of the history. */
export function linkTo(place, owner) {
  return withOwner(`#/${place}`, owner);
}

/** Return the link to a build, or to a part of it. */
export function linkToBuild(id, owner, tab = TABS[0]) {
  const part = tab === TABS[0] ? "" : `/${tab}`;
  return withOwner(`#/builds/${encodeURIComponent(id)}${part}`, owner);
}

/** Return the link to two builds side by side. */
export function linkToDiff(a, b, owner) {
  return withOwner(`#/builds/${encodeURIComponent(a)}/diff/${encodeURIComponent(b)}`, owner);
}

function withOwner(path, owner) {
  return owner ? `${path}?owner=${encodeURIComponent(owner.toWellFormed())}` : path;
}

function decoded(part) {
  try {
    return decodeURIComponent(part);
  } catch {
    return part;
  }
}
