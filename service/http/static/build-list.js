/** <build-list>: an owner's builds, newest first, with a filter, and two of them to be compared. */

import { el } from "./dom.js";
import { clock, count, dayAndClock, leftOut, number, percent, words } from "./format.js";
import { empty } from "./notices.js";
import { linkToBuild, linkToDiff } from "./router.js";
import { hasAll, nothingFound, termsOf } from "./search.js";

const KINDS = {
  all: ["All builds", () => true],
  dropped: ["Something left out", ({ outcomes }) => leftOut(outcomes) > 0],
  refused: ["Refused", ({ refusal }) => refusal !== null],
  warned: ["With warnings", ({ warnings }) => warnings.length > 0],
  full: ["More than 90 % full", ({ utilization }) => utilization > 0.9],
};

/** Characters of a question in a line, which shows its first two rows. */
const SHOWN_CHARACTERS = 300;

class BuildList extends HTMLElement {
  #builds = [];
  #rows = new Map();
  #picked = [];
  #owner = "";
  #current = "";
  #next = null;
  #wish = { terms: [], kind: "all" };
  #list = el("ol", { class: "plain builds" });
  #state = el("div");
  #counts = el("p", { class: "soft", role: "status" });
  #compare = el("div", { class: "compare", hidden: true });
  #more = el(
    "button",
    { type: "button", class: "earlier", onclick: () => this.onmore?.() },
    "Show earlier builds",
  );
  #search = el("input", {
    type: "search",
    placeholder: "question, id, run, model, strategy",
    oninput: ({ target }) => this.#filter({ terms: termsOf(target.value) }),
  });

  connectedCallback() {
    if (this.children.length) return;
    const kinds = Object.entries(KINDS).map(([value, [name]]) => el("option", { value }, name));
    const onchange = ({ target }) => this.#filter({ kind: target.value });
    this.append(
      el(
        "div",
        { class: "filters" },
        el("label", { class: "field grow" }, el("span", {}, "Search"), this.#search),
        el("label", { class: "field" }, el("span", {}, "Show"), el("select", { onchange }, kinds)),
      ),
      this.#counts,
      this.#state,
      this.#list,
      this.#more,
      this.#compare,
    );
    this.#more.hidden = true;
  }

  /** The builds in the list, filtered or not. */
  get builds() {
    return this.#builds;
  }

  /** The start of earlier builds; null if there are none. */
  get next() {
    return this.#next;
  }

  /** Show an owner's builds; rows that are there stay as they are. */
  show(builds, owner, next) {
    const listed = new Set(builds.map((each) => each.build_id));
    for (const id of [...this.#rows.keys()]) {
      if (owner !== this.#owner || !listed.has(id)) this.#rows.delete(id);
    }
    this.#owner = owner;
    this.#builds = builds;
    this.#next = next;
    this.#pick(this.#picked.filter((id) => listed.has(id)));
    this.#draw();
  }

  /** Put earlier builds below those that are there. */
  extend(builds, next) {
    this.#builds = [...this.#builds, ...builds.filter((each) => !this.has(each.build_id))];
    this.#next = next;
    this.#draw();
    this.#searchEarlier();
  }

  /** Put builds on top, the newest last; rows that are there stay as they are. */
  add(builds) {
    const fresh = builds.filter((each) => !this.has(each.build_id));
    this.#builds = [...fresh.toReversed(), ...this.#builds];
    this.#draw();
  }

  /** Show something else instead: that builds are loading, or an error. */
  say(notice) {
    this.#builds = [];
    this.#next = null;
    this.#rows.clear();
    this.#draw();
    this.#state.replaceChildren(notice);
  }

  /** Highlight the open build. */
  mark(id) {
    this.#current = id;
    for (const [each, row] of this.#rows) this.#markRow(each, row);
  }

  /** Return whether a build is in the list. */
  has(id) {
    return this.#builds.some((each) => each.build_id === id);
  }

  /** Return a build, if the list has it. */
  find(id) {
    return this.#builds.find((each) => each.build_id === id);
  }

  /** Return the id of the build before one, in time, if the list has it. */
  before(id) {
    const at = this.#builds.findIndex((each) => each.build_id === id);
    if (at < 0) return undefined;
    return this.#builds.slice(at + 1).find(({ refusal }) => !refusal)?.build_id;
  }

  /** Move down by a number of rows from the selected one; returns the id of the build there. */
  step(by) {
    const links = [...this.#list.querySelectorAll("a")];
    const at = links.findIndex((link) => link.hasAttribute("aria-current"));
    const next = at < 0 ? links[0] : links[Math.min(Math.max(at + by, 0), links.length - 1)];
    next?.focus();
    return next?.dataset.build;
  }

  /** Go to the search. */
  search() {
    this.#search.focus();
  }

  #filter(wish) {
    this.#wish = { ...this.#wish, ...wish };
    this.#draw();
    this.#searchEarlier();
  }

  /** Fetch the builds that the list doesn't have yet, while there is a search. */
  #searchEarlier() {
    if (this.#wish.terms.length && this.#next !== null) this.onmore?.();
  }

  #draw() {
    const shown = this.#builds.filter((each) => matches(each, this.#wish));
    const rows = shown.map((each) => this.#rowOf(each));
    const staying = new Set(rows);
    // rows that stay are not moved, so that focus and selection survive
    for (const row of [...this.#list.children]) if (!staying.has(row)) row.remove();
    rows.forEach((row, place) => {
      if (this.#list.children[place] !== row) {
        this.#list.insertBefore(row, this.#list.children[place] ?? null);
      }
    });
    const searched = this.#wish.terms.length > 0 && this.#next === null;
    const notice = this.#builds.length
      ? searched && !shown.length && nothingFound("build")
      : this.#owner && noBuilds();
    this.#state.replaceChildren(notice || "");
    const all = count(this.#builds.length, "build");
    const some = this.#builds.length === shown.length ? "" : `${number(shown.length)} of `;
    this.#counts.textContent = this.#builds.length ? `${some}${all}` : "";
    this.#more.hidden = this.#next === null;
  }

  #rowOf(summary) {
    const id = summary.build_id;
    const known = this.#rows.get(id);
    if (known) return known;
    const row = el("li", {}, link(summary, this.#owner), !summary.refusal && this.#tick(id));
    this.#rows.set(id, row);
    this.#markRow(id, row);
    return row;
  }

  #tick(id) {
    const onchange = ({ target }) => {
      const others = this.#picked.filter((each) => each !== id);
      this.#pick(target.checked ? [...others, id].slice(-2) : others);
    };
    const box = el("input", { type: "checkbox", value: id, onchange });
    return el("label", { class: "tick" }, box, el("span", { class: "unseen" }, `Compare ${id}`));
  }

  #pick(ids) {
    this.#picked = ids;
    for (const box of this.#list.querySelectorAll("input")) box.checked = ids.includes(box.value);
    this.#compare.hidden = !ids.length;
    // the older one first, so that the comparison shows what has changed since
    const places = ids.map((id) => this.#builds.findIndex((each) => each.build_id === id));
    const [a, b] = places[0] < places[1] ? ids.toReversed() : ids;
    const href = b && linkToDiff(a, b, this.#owner);
    this.#compare.replaceChildren(
      b
        ? el("a", { class: "button primary", href }, "Compare the two")
        : el("p", { class: "soft" }, "Pick another build to compare with."),
    );
  }

  #markRow(id, row) {
    const anchor = row.querySelector("a");
    if (id === this.#current) anchor.setAttribute("aria-current", "page");
    else anchor.removeAttribute("aria-current");
  }
}

function link(summary, owner) {
  const { build_id: id, at, total, available, outcomes, strategy, model, warnings } = summary;
  const { refusal, request_id: request, question } = summary;
  const fill = el("span", { class: "fill" });
  fill.style.width = `${Math.min((total / available || 0) * 100, 100)}%`;
  const notes = [
    leftOut(outcomes) && `${number(leftOut(outcomes))} left out`,
    warnings.length && count(warnings.length, "warning"),
  ];
  const tokens = refusal ? total && `${number(total)} needed` : `${number(total)} tokens`;
  const kind = refusal
    ? el("span", { class: "refused" }, `Refused: ${words(refusal.code)}`)
    : el("span", {}, [strategy, model].filter(Boolean).join(" · "));
  return el(
    "a",
    { href: linkToBuild(id, owner), "data-build": id, "data-refused": refusal !== null },
    el(
      "span",
      { class: "line" },
      el("time", { datetime: at, title: dayAndClock(at) }, clock(at)),
      el("span", { class: "figure" }, tokens),
    ),
    question && el("span", { class: "question", dir: "auto" }, question.slice(0, SHOWN_CHARACTERS)),
    el("span", { class: "track", "aria-hidden": "true" }, fill),
    el(
      "span",
      { class: "line soft" },
      kind,
      el("span", {}, total === null ? "" : percent(total, available)),
    ),
    el(
      "span",
      { class: "line soft" },
      el("code", {}, (refusal ? request : id).slice(0, 12)),
      el("span", {}, notes.filter(Boolean).join(" · ")),
    ),
  );
}

function matches(summary, { terms, kind }) {
  const { build_id: id, run_id: run, request_id: request, conversation_id: talk } = summary;
  const { question, model, strategy, refusal } = summary;
  const texts = [question, id, run, request, talk, model, strategy, refusal?.code];
  return KINDS[kind][1](summary) && hasAll(terms, texts.join(" "));
}

function noBuilds() {
  return empty(
    "No builds yet",
    "Send a request for this owner over the bus or to /v1/build: it shows up here as it is built.",
    "A worker lists only its own builds, for the time of reports.ttl_seconds.",
  );
}

customElements.define("build-list", BuildList);
