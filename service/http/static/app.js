/** The page: the view that its link names, the list of builds, and live updates. */

import { get } from "./api.js";
import "./build-list.js";
import { backLink, buildView, refusedView } from "./build-view.js";
import "./connection-badge.js";
import { diffView } from "./diff-view.js";
import { el } from "./dom.js";
import { dayAndClock, shortId } from "./format.js";
import { historyView } from "./history-view.js";
import { LiveFeed } from "./live-feed.js";
import { empty, failed, loading } from "./notices.js";
import "./owner-form.js";
import { TABS, linkTo, linkToBuild, linkToDiff, read } from "./router.js";
import { shortcuts } from "./shortcuts.js";
import "./theme-switch.js";

/** Builds that are listed at a time, and held at most: of others the worker knows. */
const PAGE = 50;
const MOST = 1_000;

const at = (id) => document.getElementById(id);
const list = at("builds");
const view = at("view");
const badge = at("connection");
const form = at("owner");
const pauseButton = at("pause");

const feed = new LiveFeed();
let here = { view: "", owner: "" };
let shown = null;
let paused = null;
/** The list that is being loaded, and the builds that arrived since its request. */
let awaited = null;
let listed = Promise.withResolvers();

const VIEWS = {
  builds: () => chooseOne(),
  build: ({ id, owner, tab }) =>
    id.startsWith("ref_")
      ? refusedView(listed.promise.then(() => list.find(id)))
      : buildView({
          id,
          owner,
          tab,
          before: (each) => listed.promise.then(() => list.before(each)),
          onchoose: (name) => go(linkToBuild(id, owner, name)),
        }),
  diff: (place) => diffView(place),
  history: ({ owner }) =>
    historyView({ owner, builds: () => listed.promise.then(() => list.builds) }),
  unknown: () =>
    empty("Unknown link", "This page has no such view: choose a build in the list."),
};
const TITLES = {
  build: ({ id }) => (id.startsWith("ref_") ? "Refused request" : `Build ${shortId(id)}`),
  diff: ({ a, b }) => `${shortId(a)} and ${shortId(b)}`,
  history: () => "History",
};

function go(link) {
  if (location.hash === link) return;
  location.hash = link;
  // at once: the next key may be pressed before the browser reports the change
  follow();
}

function follow() {
  const next = read(location.hash);
  const same = ["view", "owner", "id", "a", "b"].every((key) => next[key] === here[key]);
  const otherOwner = next.owner !== here.owner;
  const moved = here.view !== "";
  const otherTab = next.tab !== here.tab;
  here = next;
  if (otherOwner) changeOwner();
  if (!same) show({ moved });
  else if (otherTab) shown.choose?.(next.tab);
}

function show({ moved }) {
  const nobody = !here.owner && here.view !== "unknown";
  shown = nobody ? welcome() : VIEWS[here.view](here);
  document.body.dataset.view = nobody ? "nobody" : here.view;
  view.replaceChildren(...(here.view === "builds" || nobody ? [] : [backLink(here.owner)]), shown);
  const title = TITLES[here.view]?.(here);
  document.title = [title, "Inspector", "context-builder"].filter(Boolean).join(" · ");
  list.mark(here.id ?? "");
  for (const link of document.querySelectorAll("[data-place]")) {
    link.href = linkTo(link.dataset.place, here.owner);
    const on = (here.view === "history") === (link.dataset.place === "history");
    link.toggleAttribute("data-on", on && !nobody);
  }
  // where the list is out of sight, what had the focus is gone with it
  if (moved && !list.checkVisibility()) view.querySelector("h2")?.focus();
}

function welcome() {
  const view = el(
    "div",
    {},
    empty(
      "Whose builds?",
      "Enter an owner key above: the owner_key of the requests. Builds show up as they are made.",
      "It is part of this page's links; a token is kept in this tab only, and never in a link.",
    ),
  );
  get("/v1/owners").then(
    ({ owners }) => owners.length && view.replaceChildren(recentOwners(owners)),
    () => {}, // the form is there in any case
  );
  return view;
}

/** Return links to the owners of recent builds, which a worker lists on its own machine alone. */
function recentOwners(owners) {
  const items = owners.map(({ owner_key: owner, at }) =>
    el(
      "li",
      {},
      el("a", { href: linkTo("builds", owner), dir: "auto" }, owner),
      el("time", { class: "soft", datetime: at }, dayAndClock(at)),
    ),
  );
  return el(
    "div",
    { class: "notice owners" },
    el("h2", {}, "Recent owners"),
    el("ul", { class: "plain" }, items),
    el("p", { class: "soft" }, "Only this machine can open this page, so it lists all owners with builds."),
  );
}

function chooseOne() {
  return empty(
    "Choose a build",
    "The list has this worker's newest builds. Tick two of them to compare them.",
    "Press ? for the keyboard shortcuts.",
  );
}

function changeOwner() {
  listed = Promise.withResolvers();
  awaited = null;
  form.show(here.owner);
  unpause();
  list.say("");
  if (!here.owner) return feed.stop();
  list.say(loading("builds"));
  feed.start(here.owner);
}

async function loadList() {
  const { owner } = here;
  const mine = (awaited = { builds: [] });
  try {
    const page = await get(`/v1/builds?limit=${PAGE}`, { owner });
    // another list was requested since: this one may be older than the one shown
    if (mine !== awaited) return;
    awaited = null;
    list.show(page.builds, owner, page.next);
    add(mine.builds);
    list.mark(here.id ?? "");
    listed.resolve();
  } catch (error) {
    if (mine !== awaited) return;
    awaited = null;
    list.say(failed(error, loadList));
  }
}

async function loadEarlier() {
  const { owner } = here;
  const before = list.next;
  try {
    const page = await get(`/v1/builds?limit=${PAGE}&before=${before}`, { owner });
    if (owner !== here.owner || before !== list.next) return;
    list.extend(page.builds, page.next);
    list.mark(here.id ?? "");
  } catch (error) {
    if (owner === here.owner) list.say(failed(error, loadList));
  }
}

function connectionChanged() {
  const { name } = feed.state;
  // what was missed meanwhile is in the list; what can't be listened to may be listed still
  if (name === "live" || name === "refused" || (name === "reconnecting" && !list.builds.length)) {
    if (!paused) loadList();
    else paused.reload = true;
  }
  if (name === "live") view.querySelector(".again")?.click();
  showState();
}

function showState() {
  if (!paused) return badge.show(feed.state);
  badge.show({
    name: "paused",
    since: paused.since,
    waiting: paused.waiting,
    lost: feed.state.name !== "live",
  });
}

function arrived({ detail }) {
  awaited?.builds.push(detail);
  if (paused) hold(detail);
  else add([detail]);
  showState();
}

/** Put builds on top; if there are too many, reload the list from the newest. */
function add(builds) {
  list.add(builds);
  if (list.builds.length > MOST && !awaited) loadList();
}

function hold(build) {
  paused.waiting += 1;
  if (paused.builds.length < MOST) paused.builds.push(build);
  else paused.reload = true;
}

function togglePause() {
  if (paused) return resume();
  paused = { since: Date.now(), waiting: 0, builds: [], reload: false };
  pauseButton.textContent = "Resume";
  showState();
}

function resume() {
  const { builds, reload } = paused;
  unpause();
  if (reload) loadList();
  else add(builds);
}

function unpause() {
  paused = null;
  pauseButton.textContent = "Pause";
  showState();
}

function compareWithBefore() {
  const other = here.view === "build" && list.before(here.id);
  if (other) go(linkToDiff(other, here.id, here.owner));
}

function stepBuild(by) {
  const id = list.step(by);
  if (id) go(linkToBuild(id, here.owner));
}

function stepTab(by) {
  if (here.view !== "build") return;
  const next = TABS[(TABS.indexOf(here.tab) + by + TABS.length) % TABS.length];
  go(linkToBuild(here.id, here.owner, next));
}

feed.addEventListener("state", connectionChanged);
feed.addEventListener("build", arrived);
feed.addEventListener("gap", () => (paused ? (paused.reload = true) : loadList()));
window.addEventListener("hashchange", follow);
pauseButton.addEventListener("click", togglePause);
list.onmore = loadEarlier;
form.onchoose = (owner) => {
  // the same owner again: with another token, perhaps
  if (owner === here.owner) (changeOwner(), show({ moved: true }));
  else go(linkTo("builds", owner));
};
at("skip").addEventListener("click", (event) => {
  event.preventDefault();
  view.focus();
});
at("keys").addEventListener(
  "click",
  shortcuts({
    j: ["Next build", () => stepBuild(1)],
    k: ["Build before", () => stepBuild(-1)],
    d: ["Compare with the one before", compareWithBefore],
    "]": ["Next tab of the build", () => stepTab(1)],
    "[": ["Tab before", () => stepTab(-1)],
    p: ["Pause, or resume", togglePause],
    "/": ["Search the list", () => list.search()],
    o: ["Choose another owner", () => form.focus()],
  }),
);
showState();
follow();
