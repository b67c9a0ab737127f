/**
 * `<context-manager-widget owner="…" model="…">` shows how full a context is, and prunes it.
 *
 * One file without parts, so that one script tag embeds it in any page. It calls the service it
 * was loaded from, or that of `src`. docs/inspector.md#the-widget describes attributes, events and parts.
 */

const INTERVAL = 3_000;
const SHORTEST_INTERVAL = 500;
const LONGEST_INTERVAL = 86_400_000;
/** Milliseconds that an answer may take, and the longest pause between two tries that failed. */
const PATIENCE = 15_000;
const LONGEST_PAUSE = 60_000;
/** Milliseconds without events and comments after which the feed is reopened. */
const SILENCE = 40_000;
/** Rows of a preview that are listed, characters of each, and ids that are sent in one go. */
const LISTED_ROWS = 100;
const LISTED_CHARACTERS = 160;
const SENT_IDS = 2_000;

const HOME = new URL(".", import.meta.url).href;

/** Metadata for hosts that list widgets. */
export const widget = Object.freeze({
  element: "context-manager-widget",
  displayName: "Context Manager",
  icon: "🧠",
  category: "intelligence",
  updateInterval: INTERVAL,
});

export class ContextManagerWidget extends HTMLElement {
  static observedAttributes = ["owner", "model", "interval", "src", "theme", "live", "token"];
  static widget = widget;

  static {
    for (const name of ["owner", "model", "theme"]) {
      Object.defineProperty(this.prototype, name, {
        configurable: true,
        enumerable: true,
        get() {
          return this.getAttribute(name) ?? "";
        },
        set(value) {
          this.#reflect(name, value);
        },
      });
    }
  }

  #view = new View(this.attachShadow({ mode: "open" }));
  #token = "";
  #status = null;
  #problem = null;
  /** When the figures came, in milliseconds since 1970; null where there are none. */
  #updated = null;
  /** What was hidden here last, for undo. */
  #hidden = [];
  #failures = 0;
  #timer = 0;
  #reading = null;
  #readAgain = false;
  #choosing = null;
  #leaveFeed = null;
  #seen = false;
  #changing = false;
  #sight = new IntersectionObserver((entries) => {
    this.#seen = entries.at(-1).isIntersecting;
    this.#wake();
  });
  #wake = () => (this.#isWatched() ? this.#start() : this.#stop());

  constructor() {
    super();
    this.#view.on("prune", () => this.prune());
    this.#view.on("confirm", () => this.#commit());
    this.#view.on("undo", () => this.undo());
    this.#view.on("retry", () => this.#retry());
  }

  connectedCallback() {
    for (const name of ContextManagerWidget.observedAttributes) this.#adopt(name);
    document.addEventListener("visibilitychange", this.#wake);
    this.#sight.observe(this);
    this.#show();
  }

  disconnectedCallback() {
    document.removeEventListener("visibilitychange", this.#wake);
    this.#sight.disconnect();
    this.#seen = false;
    this.#choosing?.abort();
    this.#view.close();
    this.#stop();
  }

  attributeChangedCallback(name, before, value) {
    if (name === "token") {
      if (value !== null) this.#hideToken(value);
    } else if (before !== value && name !== "theme") {
      this.#change({ owner: name === "owner" || name === "src", model: name === "model" });
    }
  }

  /** The address of the service; what the file was loaded from where none is set. */
  get src() {
    const src = this.getAttribute("src") || HOME;
    return URL.canParse(src, document.baseURI) ? new URL(src, document.baseURI).href : src;
  }

  set src(value) {
    this.#reflect("src", value);
  }

  /** Milliseconds between two looks; 0 for none but those of the feed and `refresh()`. */
  get interval() {
    const wanted = Number(this.getAttribute("interval") || INTERVAL);
    if (wanted === 0) return 0;
    const sane = wanted > 0 ? wanted : INTERVAL;
    return Math.min(Math.max(sane, SHORTEST_INTERVAL), LONGEST_INTERVAL);
  }

  set interval(value) {
    this.#reflect("interval", value);
  }

  get live() {
    return this.hasAttribute("live");
  }

  set live(value) {
    this.toggleAttribute("live", Boolean(value));
  }

  /** Whether there is a token. It can be set and is never given back, nor kept in the document. */
  get hasToken() {
    return this.#token !== "";
  }

  set token(value) {
    const token = value ? String(value) : "";
    if (token === this.#token) return;
    this.#token = token;
    this.#change({});
  }

  /** What the service said last, as `GET /v1/history` has it; null before that. */
  get status() {
    return this.#status;
  }

  /** How the context is doing, in words for a display. */
  getStatus() {
    const status = this.#status;
    return {
      state: status?.state ?? "idle",
      primaryMetric: status ? tokensOf(status.tokens) : "– tokens",
      secondaryMetric: `${shareKept(status) ?? "–%"} kept`,
      lastActivity: Date.parse(status?.last_message_at) || null,
      message: this.#problem?.message ?? (status ? stateOf(status) : "Loading"),
    };
  }

  /** Ask how the context is doing, now. */
  async refresh() {
    if (!this.owner) {
      this.#fail(new Problem(NO_OWNER, "Name an owner: the attribute “owner” is empty."));
      return;
    }
    this.#reading?.abort();
    const reading = (this.#reading = new AbortController());
    this.#readAgain = false;
    clearTimeout(this.#timer);
    try {
      const query = this.model && { model: this.model };
      const status = await ask(this.#place(), "v1/history", { query, signal: reading.signal });
      if (!Number.isFinite(status?.tokens)) throw noService(this.src);
      if (this.#reading === reading) this.#take(status);
    } catch (problem) {
      if (this.#reading === reading) this.#fail(problem);
    } finally {
      if (this.#reading === reading) {
        this.#reading = null;
        this.#plan();
      }
    }
  }

  /** Show what pruning would hide, for somebody to confirm. */
  async prune() {
    if (this.#choosing || !this.#status || !this.isConnected) return;
    if (!this.#status.messages) {
      this.#view.announce(offer(this.#status));
      return;
    }
    const choosing = (this.#choosing = new AbortController());
    const place = this.#place();
    this.#view.busy(true);
    try {
      // the window that the figures are of: another one would prune to another model's limit
      const body = this.model ? { model: this.model } : {};
      const preview = await ask(place, "v1/prune/preview", { body, signal: choosing.signal });
      if (choosing.signal.aborted) return;
      if (preview.ids.length) this.#view.open({ place, preview });
      else this.#view.notify(nothingToHide(preview));
    } catch (problem) {
      if (!choosing.signal.aborted) this.#view.notify(problem.message, { failed: true });
    } finally {
      if (this.#choosing === choosing) {
        this.#choosing = null;
        this.#view.busy(false);
      }
    }
  }

  /** Show again what was hidden here last. */
  async undo() {
    const ids = this.#hidden;
    const place = this.#place();
    if (!ids.length) return;
    this.#hidden = [];
    try {
      const changed = await mark(place, "v1/prune/undo", ids);
      const message = `${messages(changed)} shown again.`;
      if (this.#isOf(place)) this.#view.notify(message);
      this.#emit("restored", { ids, changed, message });
    } catch (problem) {
      this.#offerUndo(place, ids, problem.message, { failed: true });
    }
    this.#look();
  }

  /** Refresh, and reopen the feed: a refused feed is not retried by itself. */
  #retry() {
    this.refresh();
    this.#leaveFeed?.();
    this.#leaveFeed = null;
    this.#wake();
  }

  async #commit() {
    const { place, preview } = this.#view.opened;
    const done = [];
    this.#view.hiding(true);
    try {
      // the rows that were shown and no others: what was said meanwhile stays
      const changed = await mark(place, "v1/prune", preview.ids, done);
      this.#hid(place, preview, done, changed);
    } catch (problem) {
      this.#hidInPart(place, done, problem.message);
    } finally {
      this.#view.hiding(false);
    }
    this.#look();
  }

  #hid(place, preview, ids, changed) {
    const freed = preview.tokens_before - preview.tokens_after;
    const message = `${messages(changed)} hidden, ${tokensOf(freed)} freed.`;
    this.#offerUndo(place, ids, message);
    this.#emit("pruned", {
      ids,
      changed,
      original: preview.messages_before,
      final: preview.messages_after,
      removed: ids.length,
      tokenReduction: freed,
      message,
    });
  }

  #hidInPart(place, ids, message) {
    const report = `${messages(ids.length)} hidden, then: ${message}`;
    if (ids.length) this.#offerUndo(place, ids, report, { failed: true });
    else if (this.#isOf(place)) this.#view.refuse(message);
  }

  #offerUndo(place, ids, message, { failed = false } = {}) {
    if (!this.#isOf(place)) return;
    this.#hidden = ids;
    this.#view.close();
    this.#view.notify(message, { undo: true, failed });
  }

  /** Return whether it still shows the owner of a request. */
  #isOf({ base, owner }) {
    return base === this.src && owner === this.owner;
  }

  #place() {
    return { base: this.src, owner: this.owner, token: this.#token };
  }

  #take(status) {
    const before = this.#status;
    const failed = this.#problem !== null;
    this.#status = status;
    this.#problem = null;
    this.#failures = 0;
    this.#updated = Date.now();
    if (before && status.state !== before.state) {
      this.#view.announce(`Context Manager: ${stateOf(status)}.`);
    } else if (failed) {
      this.#view.announce("Context Manager: up to date again.");
    }
    this.#show();
    if (JSON.stringify(status) !== JSON.stringify(before)) {
      this.#emit("status", { status, ...this.getStatus() });
    }
  }

  #fail(problem) {
    const { code, message, lasting } = problem;
    const same = this.#problem?.message === message;
    this.#failures += 1;
    this.#problem = problem;
    this.#show();
    if (same) return;
    this.#view.announce(`Context Manager: ${message}`);
    this.#emit("error", { code, message, retryable: !lasting });
  }

  #emit(name, detail) {
    const options = { detail, bubbles: true, composed: true };
    this.dispatchEvent(new CustomEvent(`context-manager:${name}`, options));
  }

  #show() {
    this.#view.show({
      owner: this.owner,
      model: this.model || this.#status?.model || "",
      status: this.#status,
      problem: this.#problem,
      updated: this.#updated,
      interval: this.interval,
      live: this.live,
    });
  }

  #isWatched() {
    return this.isConnected && this.#seen && !document.hidden;
  }

  #start() {
    if (this.live && this.owner) {
      this.#leaveFeed ??= Feed.join(this.#place(), () => this.#look());
    }
    if (!this.#timer && !this.#reading) this.refresh();
  }

  #stop() {
    clearTimeout(this.#timer);
    this.#timer = 0;
    this.#reading?.abort();
    this.#reading = null;
    this.#leaveFeed?.();
    this.#leaveFeed = null;
  }

  /** Ask again soon: after the answer that is awaited, which may be older than what happened. */
  #look() {
    if (this.#reading) this.#readAgain = true;
    else if (this.#isWatched()) this.refresh();
  }

  #plan() {
    this.#timer = 0;
    if (!this.#isWatched()) return;
    if (this.#readAgain) {
      this.refresh();
    } else if (this.interval && !this.#problem?.lasting) {
      const pause = this.interval * 2 ** Math.min(this.#failures, 10);
      const longest = Math.max(LONGEST_PAUSE, this.interval);
      this.#timer = setTimeout(() => this.refresh(), Math.min(pause, longest));
    }
  }

  /** Restart, once for all attributes that change together; figures of others aren't shown. */
  #change({ owner = false, model = false }) {
    if (owner || model) {
      this.#status = this.#updated = null;
      this.#reading?.abort();
      this.#choosing?.abort();
      this.#reading = this.#choosing = null;
      this.#view.busy(false);
      this.#view.close();
    }
    if (owner) {
      this.#hidden = [];
      this.#view.notify("");
    }
    if (this.#changing) return;
    this.#changing = true;
    queueMicrotask(() => {
      this.#changing = false;
      this.#failures = 0;
      this.#problem = null;
      this.#stop();
      this.#show();
      this.#wake();
    });
  }

  /** Take a token out of the document, where every script and every saved page would have it. */
  #hideToken(value) {
    this.token = value;
    this.removeAttribute("token");
  }

  #reflect(name, value) {
    if (value === null || value === undefined || value === "") this.removeAttribute(name);
    else this.setAttribute(name, String(value));
  }

  /** Take over a property that was set before the element was known. */
  #adopt(name) {
    if (!Object.hasOwn(this, name)) return;
    const value = this[name];
    delete this[name];
    this[name] = value;
  }
}

const NO_OWNER = "no_owner";
const STATES = { idle: "Idle", active: "Active" };
const PRUNE = "Prune history…";
const HIDDEN = { hidden: "" };
const SUBLABEL = { part: "sublabel" };
const METER = {
  role: "meter",
  "aria-label": "Kept by the newest build",
  "aria-valuemin": "0",
  "aria-valuemax": "100",
};

/** What is seen. Its nodes are made once and changed in place: focus and selection stay. */
class View {
  /** What the dialog shows: the preview, and its owner. */
  opened = null;
  #nodes = {};
  #actions = {};

  constructor(root) {
    root.adoptedStyleSheets = [SHEET];
    root.append(this.#made());
    this.#nodes.prune.setAttribute("aria-describedby", "reason");
  }

  /** Call back when `prune`, `confirm`, `undo` or `retry` is chosen. */
  on(action, call) {
    this.#actions[action] = call;
  }

  show({ owner, model, status, problem, updated, interval, live }) {
    const nodes = this.#nodes;
    put(nodes.owner, owner);
    put(nodes.model, model);
    put(nodes.state, status ? stateOf(status) : problem ? "Unknown" : "Loading…");
    nodes.container.dataset.state = status?.state ?? "idle";
    nodes.container.toggleAttribute("data-stale", problem !== null);
    this.#showFigures(status);
    nodes.prune.setAttribute("aria-disabled", String(!status?.messages));
    put(nodes.reason, status ? offer(status) : "");
    put(nodes.automatic, status ? automatic(status) : "");
    nodes.info.hidden = !status;
    put(nodes.trouble, problem?.message ?? "");
    this.#offer(nodes.retry, problem !== null && problem.code !== NO_OWNER);
    nodes.problem.hidden = !problem;
    put(nodes.updated, updated ? freshness({ updated, problem, interval, live }) : "");
  }

  /** Announce something to screen readers. */
  announce(text) {
    put(this.#nodes.said, text);
  }

  notify(text, { undo = false, failed = false } = {}) {
    const { note, noted } = this.#nodes;
    put(noted, text);
    note.hidden = !text;
    note.toggleAttribute("data-failed", failed);
    this.#offer(this.#nodes.undo, undo);
    if (text) this.announce(text);
  }

  /** Show a button or not; one that goes leaves the focus to one that stays. */
  #offer(button, shown) {
    const focused = button.getRootNode().activeElement === button;
    button.hidden = !shown;
    if (focused && !shown) this.#nodes.prune.focus();
  }

  busy(on) {
    const { prune } = this.#nodes;
    prune.setAttribute("aria-busy", String(on));
    put(prune, on ? "Choosing…" : PRUNE);
  }

  open({ place, preview }) {
    const nodes = this.#nodes;
    this.opened = { place, preview };
    const all = messages(preview.messages_before);
    put(nodes.question, `Hide ${count(preview.ids.length)} of ${all}?`);
    nodes.facts.replaceChildren(...factsOf(preview).map((fact) => make("p", {}, fact)));
    nodes.listed.replaceChildren(...preview.rows.slice(0, LISTED_ROWS).map(rowOf));
    const more = preview.rows.length - LISTED_ROWS;
    put(nodes.more, more > 0 ? `And ${messages(more)} more.` : "");
    put(nodes.confirm, `Hide ${messages(preview.ids.length)}`);
    this.refuse("");
    if (!nodes.dialog.open) nodes.dialog.showModal();
    nodes.rows.scrollTop = 0;
  }

  close() {
    this.#nodes.dialog.close();
  }

  hiding(on) {
    this.#nodes.confirm.disabled = on;
    this.#nodes.dialog.setAttribute("aria-busy", String(on));
  }

  refuse(text) {
    const { dialog, refusal } = this.#nodes;
    put(refusal, text);
    refusal.hidden = !text;
    if (text && !dialog.open) this.notify(text, { failed: true });
  }

  #showFigures(status) {
    const nodes = this.#nodes;
    const kept = shareKept(status);
    const hidden = status?.pruned ? `${count(status.pruned)} hidden by hand` : "in history";
    put(nodes.messages, status ? count(status.messages) : "–");
    put(nodes.hidden, hidden);
    put(nodes.tokens, status ? count(status.tokens) : "–");
    put(nodes.limit, status ? `a context holds ${count(status.available)}` : "");
    put(nodes.kept, kept ?? "–");
    put(nodes.newest, status ? keptOf(status) : "");
    put(nodes.summaries, status ? count(status.summaries) : "–");
    nodes.meter.setAttribute("aria-valuenow", String(Number.parseFloat(kept ?? "0")));
    nodes.meter.setAttribute("aria-valuetext", kept ?? "unknown");
    nodes.meter.style.setProperty("--filled", kept ?? "0%");
  }

  #made() {
    const reason = this.#node("reason", "span", { id: "reason" });
    return this.#node(
      "container",
      "section",
      { "aria-labelledby": "title subject" },
      make("header", { part: "header" }, icon(), this.#names(), this.#node("state", "span")),
      make(
        "dl",
        { part: "stats" },
        this.#card("messages", "Messages", this.#node("hidden", "dd", SUBLABEL)),
        this.#card("tokens", "Tokens", this.#node("limit", "dd", SUBLABEL)),
        this.#card(
          "kept",
          "Kept",
          this.#node("newest", "dd", SUBLABEL),
          make("dd", {}, this.#node("meter", "div", METER)),
        ),
        this.#card("summaries", "Summaries", make("dd", SUBLABEL, "for older messages")),
      ),
      make("div", { part: "actions" }, this.#button("prune", PRUNE), reason),
      this.#node("note", "div", HIDDEN, this.#node("noted", "span"), this.#button("undo", "Undo")),
      this.#node(
        "problem",
        "div",
        HIDDEN,
        this.#node("trouble", "span"),
        this.#button("retry", "Try again"),
      ),
      this.#node(
        "info",
        "div",
        HIDDEN,
        make("strong", {}, "Automatic management"),
        this.#node("automatic", "p"),
      ),
      make("footer", { part: "footer" }, this.#node("updated", "span")),
      this.#node("said", "p", { class: "unseen", role: "status" }),
      this.#dialog(),
    );
  }

  #names() {
    const subject = [this.#node("owner", "bdi"), " ", this.#node("model", "bdi")];
    return make(
      "div",
      { class: "names" },
      make("h2", { id: "title", part: "title" }, widget.displayName),
      make("p", { id: "subject", part: "subject" }, ...subject),
    );
  }

  #card(name, label, ...below) {
    const value = this.#node(name, "dd", { part: "value" });
    const heading = make("dt", { part: "label" }, label);
    return make("div", { part: `card ${name}` }, heading, value, ...below);
  }

  #dialog() {
    const rows = { role: "region", "aria-label": "Messages to hide", tabindex: "0" };
    const dialog = this.#node(
      "dialog",
      "dialog",
      { "aria-labelledby": "question" },
      this.#node("question", "h3", { id: "question", part: "dialog-title" }),
      this.#node("facts", "div"),
      this.#node("rows", "div", rows, this.#node("listed", "ul"), this.#node("more", "p")),
      this.#node("refusal", "p", { part: "problem", role: "alert", hidden: "" }),
      make(
        "div",
        { part: "dialog-actions" },
        this.#button("cancel", "Cancel"),
        this.#button("confirm", "Hide"),
      ),
    );
    // a repeated key press must not confirm an unread text
    this.#nodes.cancel.autofocus = true;
    this.on("cancel", () => this.close());
    return dialog;
  }

  /** Make a node that is found under its name, which its part has too. */
  #node(name, tag, attributes = {}, ...children) {
    return (this.#nodes[name] = make(tag, { part: name, ...attributes }, ...children));
  }

  #button(name, text) {
    const button = this.#node(name, "button", { type: "button", part: `button ${name}-button` });
    put(button, text);
    button.addEventListener("click", () => this.#actions[name]?.());
    return button;
  }
}

/** A feed of builds, one for all widgets of an owner: browsers open few connections. */
class Feed {
  static #open = new Map();

  /** Call back on each build; returns what ends that. */
  static join(place, hear) {
    const key = JSON.stringify([place.base, place.owner, place.token]);
    if (!Feed.#open.has(key)) Feed.#open.set(key, new Feed(place, key));
    const feed = Feed.#open.get(key);
    feed.#listeners.add(hear);
    return () => {
      feed.#listeners.delete(hear);
      if (feed.#listeners.size) return;
      feed.#end.abort();
      feed.#forget();
    };
  }

  #listeners = new Set();
  #end = new AbortController();
  #key;

  constructor(place, key) {
    this.#key = key;
    this.#listen(place);
  }

  /** Stop sharing this feed. */
  #forget() {
    if (Feed.#open.get(this.#key) === this) Feed.#open.delete(this.#key);
  }

  async #listen(place) {
    const { signal } = this.#end;
    for (let tries = 0; !signal.aborted; tries += 1) {
      const silence = new Silence();
      try {
        const either = AbortSignal.any([signal, silence.signal]);
        const answer = await answered(place, "v1/live", { signal: either });
        if (tries) this.#ring(); // something may have happened in between
        tries = 0;
        await this.#read(answer, silence);
      } catch (problem) {
        if (problem.lasting || signal.aborted) return this.#forget();
      } finally {
        silence.end();
      }
      await pause(Math.min(INTERVAL * 2 ** tries, LONGEST_PAUSE), signal);
    }
  }

  async #read(answer, silence) {
    let rest = "";
    const reader = answer.body.pipeThrough(new TextDecoderStream()).getReader();
    for (;;) {
      const { done, value } = await reader.read();
      if (done) return;
      silence.broken();
      const events = (rest + value).split("\n\n");
      rest = events.pop();
      if (events.some((event) => /^event: (build|gap)$/m.test(event))) this.#ring();
    }
  }

  #ring() {
    for (const hear of this.#listeners) hear();
  }
}

/** Gives a signal where nothing is heard for long: a connection may be gone without an end. */
class Silence {
  #ending = new AbortController();
  #timer = 0;
  signal = this.#ending.signal;

  constructor() {
    this.broken();
  }

  broken() {
    clearTimeout(this.#timer);
    this.#timer = setTimeout(() => this.#ending.abort(), SILENCE);
  }

  end() {
    clearTimeout(this.#timer);
  }
}

/** Why there are no figures, in words. `lasting` are those that waiting doesn't help. */
class Problem extends Error {
  constructor(code, message, { lasting = true } = {}) {
    super(message);
    this.name = "Problem";
    this.code = code;
    this.lasting = lasting;
  }
}

function noService(base) {
  return new Problem("no_service", `There is no context-builder at ${base}.`);
}

const WORDS = {
  unauthorized: "The service needs a token: it is missing or wrong.",
  forbidden: "The service doesn't allow requests from this page; see its setting http.allowed_origins.",
  overloaded: "The service is too busy at the moment.",
};

/** Ask the service for something of an owner; throws `Problem`, or an abort. */
async function ask(place, path, { query, body, signal, patience = PATIENCE } = {}) {
  const late = AbortSignal.timeout(patience);
  const signals = signal ? [signal, late] : [late];
  try {
    return await (
      await answered(place, path, { query, body, signal: AbortSignal.any(signals) })
    ).json();
  } catch (error) {
    if (error instanceof Problem || signal?.aborted) throw error;
    if (late.aborted) {
      throw new Problem("timeout", "The service didn't answer in time.", { lasting: false });
    }
    throw noService(place.base);
  }
}

async function answered(place, path, { query, body, signal }) {
  const url = new URL(path, place.base.endsWith("/") ? place.base : `${place.base}/`);
  url.search = new URLSearchParams(query || {}).toString();
  const headers = { "X-Owner-Key": encodeURIComponent(place.owner.toWellFormed()) };
  if (place.token) headers.Authorization = `Bearer ${place.token}`;
  if (body) headers["Content-Type"] = "application/json";
  const sent = body ? { method: "POST", body: JSON.stringify(body) } : {};
  let answer;
  try {
    // a redirect would carry the owner's key, and perhaps the token, to an unknown server
    answer = await fetch(url, { ...sent, headers, signal, cache: "no-store", redirect: "error" });
  } catch (error) {
    if (signal?.aborted) throw error;
    const foreign = url.origin !== location.origin ? ", or doesn't let this page ask" : "";
    const words = `The service at ${url.origin} can't be reached${foreign}.`;
    throw new Problem("unreachable", words, { lasting: false });
  }
  if (!answer.ok) throw await problemOf(answer);
  return answer;
}

async function problemOf(answer) {
  const passing = answer.status === 408 || answer.status === 429 || answer.status >= 500;
  const body = await answer.json().catch(() => ({}));
  const { code = `http_${answer.status}`, title, detail } = body?.error ?? {};
  const words = WORDS[code] ?? detail ?? title ?? `The service answered with ${answer.status}.`;
  return new Problem(code, words, { lasting: !passing });
}

/** Hide or show rows in batches; `done` gets their ids. Returns how many changed. */
async function mark(place, path, ids, done = []) {
  let changed = 0;
  for (let start = 0; start < ids.length; start += SENT_IDS) {
    const part = ids.slice(start, start + SENT_IDS);
    changed += (await ask(place, path, { body: { ids: part } })).changed;
    done.push(...part);
  }
  return changed;
}

function pause(milliseconds, signal) {
  return new Promise((resolve) => {
    const timer = setTimeout(resolve, milliseconds);
    const end = () => {
      clearTimeout(timer);
      resolve();
    };
    signal.addEventListener("abort", end, { once: true });
  });
}

const NUMBERS = new Intl.NumberFormat("en");
const TIMES = new Intl.DateTimeFormat(undefined, { timeStyle: "medium" });
const MOMENTS = new Intl.DateTimeFormat(undefined, { dateStyle: "medium", timeStyle: "short" });

function count(number) {
  return NUMBERS.format(number);
}

function tokensOf(number) {
  return `${count(number)} ${number === 1 ? "token" : "tokens"}`;
}

function messages(number) {
  return `${count(number)} ${number === 1 ? "message" : "messages"}`;
}

function stateOf({ state }) {
  return STATES[state] ?? state;
}

/** Return the share of history that the newest build kept; null where none is known. */
function shareKept(status) {
  return status?.candidates ? `${((status.kept / status.candidates) * 100).toFixed(1)}%` : null;
}

function keptOf({ kept, candidates }) {
  if (!candidates) return "no build yet";
  return `${count(kept)} of ${count(candidates)} in the newest build`;
}

function offer({ messages: rows, strategy }) {
  if (!rows) return "Nothing to prune: no messages yet.";
  return strategy === "none" ? "" : "Not needed: builds choose what fits.";
}

function nothingToHide({ tokens_before: before, target_tokens: target, over_target: over }) {
  const sizes = `${count(before)} tokens, and pruning aims at ${count(target)}`;
  return over ? `Nothing can be hidden: all that is left stays (${sizes}).` : `Nothing to hide: ${sizes}.`;
}

/** Return what the newest builds recalled of the messages that would be hidden. */
function recallsOf({ builds, recalled, recalled_hidden: hidden }) {
  if (!builds) return "";
  const last = builds === 1 ? "The newest build" : `The last ${count(builds)} builds`;
  if (!recalled) return `${last} recalled no older messages.`;
  const share = `${((hidden / recalled) * 100).toFixed(0)}%`;
  return `${last} recalled ${messages(recalled)}: ${count(hidden)} (${share}) would have been hidden.`;
}

function automatic({ strategy, limit, reserve }) {
  const room = `The window holds ${count(limit)} tokens, ${count(reserve)} of them for the answer.`;
  return strategy === "none"
    ? `${room} It is off: builds keep all messages, and fail when these don't fit.`
    : `${room} Each build fits messages into it by the strategy ${strategy}, unless it names` +
        " another, and deletes none.";
}

function freshness({ updated, problem, interval, live }) {
  const time = TIMES.format(updated);
  if (problem) return `As of ${time}`;
  const how = [live && "with each build", interval && `every ${count(interval / 1000)} s`];
  return [`Updated ${time}`, ...how.filter(Boolean)].join(" · ");
}

function factsOf(preview) {
  const { tokens_before: before, tokens_after: after, target_tokens: target } = preview;
  return [
    `${count(before)} tokens become ${count(after)}, to get below ${count(target)}.` +
      " The least important go, nothing is deleted, and you can undo it.",
    recallsOf(preview),
    preview.over_target && "What always stays, such as the newest question, is more than that.",
    preview.not_read > 0 && `${messages(preview.not_read)} were not looked at: there are too many.`,
    preview.content === "redacted" &&
      "Texts aren't shown here: the service's setting http.content is “redacted”.",
  ].filter(Boolean);
}

function rowOf({ role, timestamp, tokens, content }) {
  const said = typeof content === "string" ? content : JSON.stringify(content ?? "");
  const cut = said.length > LISTED_CHARACTERS ? `${said.slice(0, LISTED_CHARACTERS)}…` : said;
  const time = Date.parse(timestamp);
  return make(
    "li",
    { part: "row" },
    make("bdi", { part: "row-role" }, role),
    make("span", { part: "row-time" }, time ? MOMENTS.format(time) : ""),
    make("span", { part: "row-tokens" }, tokensOf(tokens)),
    content === null ? "" : make("bdi", { part: "row-content", dir: "auto" }, cut.toWellFormed()),
  );
}

/** Lines of a context; the lowest one drops out. */
function icon() {
  const space = "http://www.w3.org/2000/svg";
  const svg = document.createElementNS(space, "svg");
  const drawn = { viewBox: "0 0 24 24", "aria-hidden": "true", part: "icon" };
  for (const [name, value] of Object.entries(drawn)) svg.setAttribute(name, value);
  for (const [y, width, opacity] of [[4, 18, 1], [10.5, 13, 0.65], [17, 7, 0.35]]) {
    const line = document.createElementNS(space, "rect");
    const place = { x: 3, y, width, height: 3.5, rx: 1.75, opacity, fill: "currentColor" };
    for (const [name, value] of Object.entries(place)) line.setAttribute(name, value);
    svg.append(line);
  }
  return svg;
}

/** Make an element; what is given as text stays text. */
function make(tag, attributes, ...children) {
  const node = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) node.setAttribute(name, value);
  node.append(...children.filter((child) => child !== ""));
  return node;
}

/** Set a text only if it differs: otherwise a selection in it would be lost. */
function put(node, text) {
  if (node.textContent !== text) node.textContent = text;
}

const SHEET = new CSSStyleSheet();
SHEET.replaceSync(`
  :host { display: block; }
  :host([hidden]) { display: none; }
  section {
    /* what a page sets for all elements ends here */
    all: initial;
    color-scheme: light dark;
    display: grid;
    gap: 1em;
    padding: 1.25em;
    border: 1px solid var(--line);
    border-radius: var(--radius);
    overflow-wrap: anywhere;
    --text: var(--cmw-text, light-dark(#1a202b, #e8ebf1));
    --soft: var(--cmw-soft, light-dark(#525c6c, #a7b0c0));
    --surface: var(--cmw-surface, light-dark(#ffffff, #171b23));
    --card: var(--cmw-card, light-dark(#f6f7f9, #1e232d));
    --line: var(--cmw-line, light-dark(#dde1e8, #2b323f));
    --accent: var(--cmw-accent, light-dark(#2f55d4, #8fabff));
    --accent-text: var(--cmw-accent-text, light-dark(#ffffff, #0d1530));
    --good: var(--cmw-good, light-dark(#16703f, #5fcf93));
    --good-wash: var(--cmw-good-wash, light-dark(#e3f4ea, #14301f));
    --bad: var(--cmw-bad, light-dark(#b3261e, #ff9188));
    --bad-wash: var(--cmw-bad-wash, light-dark(#fdeae8, #3c1a18));
    --radius: var(--cmw-radius, 0.75em);
    background: var(--surface);
    color: var(--text);
    font: 400 var(--cmw-font-size, 0.9375rem) / 1.45
      var(--cmw-font, system-ui, -apple-system, "Segoe UI", Roboto, "Noto Sans", sans-serif);
    font-variant-numeric: tabular-nums;
  }
  :host([theme="light"]) section { color-scheme: light; }
  :host([theme="dark"]) section { color-scheme: dark; }
  :host([theme="inherit"]) section { color-scheme: inherit; }
  *, ::before, ::after { box-sizing: border-box; }
  [hidden] { display: none !important; }
  h2, h3, p, dl, dd, ul { margin: 0; padding: 0; }
  [part="header"] { display: flex; align-items: start; gap: 0.75em; }
  [part="icon"] { flex: none; inline-size: 1.5em; block-size: 1.5em; color: var(--accent); }
  .names { flex: 1; min-inline-size: 0; }
  h2 { font-size: 1.0625em; font-weight: 650; line-height: 1.4; }
  [part="subject"] { color: var(--soft); font-size: 0.875em; }
  [part="model"]:not(:empty)::before { content: "· "; }
  [part="state"] {
    flex: none;
    padding: 0.15em 0.75em;
    border-radius: 2em;
    background: var(--card);
    color: var(--soft);
    font-size: 0.8125em;
    font-weight: 600;
  }
  [data-state="active"] [part="state"] { background: var(--good-wash); color: var(--good); }
  [data-stale] [part="state"] { background: var(--card); color: var(--soft); }
  [part="stats"] { display: flex; flex-wrap: wrap; gap: 0.75em; }
  [part~="card"] {
    /* four in a row, or two where there is less room */
    flex: 1 1 clamp(20%, (34em - 100%) * 999, 40%);
    padding: 0.75em 0.875em;
    background: var(--card);
    border: 1px solid transparent;
    border-radius: calc(var(--radius) * 0.7);
  }
  [part="label"] { color: var(--soft); font-size: 0.8125em; }
  [part="value"] { font-size: 1.5em; font-weight: 600; line-height: 1.35; white-space: nowrap; }
  [part="sublabel"] { color: var(--soft); font-size: 0.8125em; }
  [data-stale] [part="value"] { color: var(--soft); }
  [part="meter"] {
    position: relative;
    block-size: 0.5em;
    margin-block-start: 0.4em;
    border-radius: 1em;
    background: var(--line);
    overflow: hidden;
  }
  [part="meter"]::before {
    content: "";
    position: absolute;
    inset: 0 auto 0 0;
    inline-size: var(--filled, 0%);
    border-radius: inherit;
    background: var(--accent);
    transition: inline-size 0.4s ease;
  }
  [part="note"], [part="problem"] {
    padding: 0.6em 0.875em;
    border-radius: calc(var(--radius) * 0.7);
  }
  [part="note"] { background: var(--good-wash); color: var(--good); }
  [part="problem"], [part="note"][data-failed] { background: var(--bad-wash); color: var(--bad); }
  div:is([part="note"], [part="problem"]), [part="actions"] {
    display: flex;
    flex-wrap: wrap;
    align-items: center;
    justify-content: space-between;
    gap: 0.5em 1em;
  }
  [part="actions"] { justify-content: start; }
  [part="reason"], [part="info"], [part="footer"] { color: var(--soft); font-size: 0.875em; }
  [part="info"] { padding-block-start: 0.9em; border-block-start: 1px solid var(--line); }
  [part="info"] strong { color: var(--text); font-weight: 600; }
  [part="footer"] { min-block-size: 1.45em; font-size: 0.8125em; }
  button {
    min-block-size: 2.25em;
    padding: 0.35em 0.9em;
    border: 1px solid color-mix(in srgb, currentColor 45%, transparent);
    border-radius: calc(var(--radius) * 0.6);
    background: transparent;
    color: inherit;
    font: inherit;
    font-weight: 600;
    cursor: pointer;
  }
  [part~="undo-button"], [part~="retry-button"] { min-block-size: 1.75em; padding-block: 0.1em; }
  [part~="confirm-button"] {
    border-color: transparent;
    background: var(--accent);
    color: var(--accent-text);
  }
  [part~="prune-button"][aria-disabled="true"] {
    border-color: var(--line);
    background: transparent;
    color: var(--soft);
    cursor: default;
  }
  button:is(:disabled, [aria-busy="true"]) { cursor: progress; opacity: 0.75; }
  :focus-visible { outline: 2px solid var(--accent); outline-offset: 2px; }
  .unseen {
    position: absolute;
    inline-size: 1px;
    block-size: 1px;
    overflow: hidden;
    clip-path: inset(50%);
    white-space: nowrap;
  }
  dialog {
    inline-size: min(38em, 100vw - 2em);
    max-block-size: min(46em, 100vh - 2em);
    padding: 1.5em;
    border: 1px solid var(--line);
    border-radius: var(--radius);
    background: var(--surface);
    color: var(--text);
    box-shadow: 0 1em 3em rgb(0 0 0 / 25%);
    overflow-wrap: anywhere;
  }
  dialog[open] { display: flex; flex-direction: column; gap: 1em; }
  dialog::backdrop { background: rgb(10 14 22 / 45%); }
  h3 { font-size: 1.1875em; font-weight: 650; line-height: 1.3; }
  [part="facts"] { display: grid; gap: 0.4em; color: var(--soft); }
  [part="rows"] {
    min-block-size: 5em;
    overflow: auto;
    border: 1px solid var(--line);
    border-radius: calc(var(--radius) * 0.7);
  }
  [part="more"]:not(:empty) {
    padding: 0.6em 0.875em;
    border-block-start: 1px solid var(--line);
    color: var(--soft);
  }
  [part="rows"] ul { list-style: none; }
  [part="row"] {
    display: grid;
    grid-template-columns: minmax(3em, auto) 1fr auto;
    gap: 0.1em 0.75em;
    padding: 0.6em 0.875em;
    border-block-end: 1px solid var(--line);
    font-size: 0.875em;
  }
  [part="row"]:last-child { border-block-end: none; }
  [part="row-role"] { font-weight: 600; }
  [part="row-time"], [part="row-tokens"] { color: var(--soft); }
  [part="row-content"] { grid-column: 1 / -1; }
  [part="dialog-actions"] { display: flex; flex-wrap: wrap; justify-content: end; gap: 0.75em; }
  @media (prefers-reduced-motion: reduce) {
    [part="meter"]::before { transition: none; }
  }
  @media (forced-colors: active) {
    [part="meter"] { border: 1px solid CanvasText; }
    [part="meter"]::before { forced-color-adjust: none; background: Highlight; }
    [part="note"], [part="problem"], [part="state"], [part~="card"] {
      border: 1px solid CanvasText;
    }
  }
`);

if (!customElements.get(widget.element)) {
  customElements.define(widget.element, ContextManagerWidget);
}
