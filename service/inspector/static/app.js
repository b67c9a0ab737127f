/** The page: what its link names, the list of builds beside it, and what comes in meanwhile. */

import { get } from "./api.js";
import "./build-list.js";
import { backLink, buildView } from "./build-view.js";
import "./connection-badge.js";
import { diffView } from "./diff-view.js";
import { shortId } from "./format.js";
import { historyView } from "./history-view.js";
import { LiveFeed } from "./live-feed.js";
import { empty, failed, loading } from "./notices.js";
import "./owner-form.js";
import { TABS, linkTo, linkToBuild, linkToDiff, read } from "./router.js";
import { shortcuts } from "./shortcuts.js";
import "./theme-switch.js";

/** Builds that are listed at a time. */
const PAGE = 50;

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
let listed = Promise.withResolvers();

const VIEWS = {
  builds: () => chooseOne(),
  build: ({ id, owner, tab }) =>
    buildView({
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
    empty("There is no such place", "The link is none of this page: choose a build in the list."),
};
const TITLES = {
  build: ({ id }) => `Build ${shortId(id)}`,
  diff: ({ a, b }) => `${shortId(a)} and ${shortId(b)}`,
  history: () => "History",
};

function go(link) {
  if (location.hash === link) return;
  location.hash = link;
  // at once: the next key may come before the browser tells of the change
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
  return empty(
    "Whose builds?",
    "Enter an owner key above: the owner_key of the requests. Builds show up as they are made.",
    "It stands in this page's links; a token is kept for this tab alone, and never in a link.",
  );
}

function chooseOne() {
  return empty(
    "Choose a build",
    "The list has this worker's newest builds. Tick two of them to compare them.",
    "Press ? for what the keyboard does.",
  );
}

function changeOwner() {
  listed = Promise.withResolvers();
  form.show(here.owner);
  resume([]);
  list.say("");
  if (!here.owner) return feed.stop();
  list.say(loading("builds"));
  feed.start(here.owner);
}

async function loadList(before = null) {
  const { owner } = here;
  try {
    const earlier = before === null ? "" : `&before=${before}`;
    const page = await get(`/v1/builds?limit=${PAGE}${earlier}`, { owner });
    if (owner !== here.owner) return;
    if (before === null) list.show(page.builds, owner, page.next);
    else list.extend(page.builds, page.next);
    list.mark(here.id ?? "");
    listed.resolve();
  } catch (error) {
    if (owner === here.owner) list.say(failed(error, () => loadList()));
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
    waiting: paused.builds.length,
    lost: feed.state.name !== "live",
  });
}

function arrived({ detail }) {
  if (paused) paused.builds.push(detail);
  else list.add([detail]);
  showState();
}

function togglePause() {
  if (paused) return resume(paused.builds);
  paused = { since: Date.now(), builds: [], reload: false };
  pauseButton.textContent = "Resume";
  showState();
}

function resume(builds) {
  const reload = paused?.reload;
  paused = null;
  pauseButton.textContent = "Pause";
  if (builds.length) list.add(builds);
  if (reload) loadList();
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
list.onmore = () => loadList(list.next);
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
