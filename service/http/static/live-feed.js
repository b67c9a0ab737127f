/** An owner's builds as they come, and the truth about the connection that they come over. */

import { listen } from "./api.js";

/** Milliseconds of silence, pings included, after which what is shown may be old. */
const SILENCE = 40_000;
/** Milliseconds before the first new attempt, and the most before any. */
const FIRST_WAIT = 1_000;
const LONGEST_WAIT = 15_000;

/**
 * Events: `build` with a line of the list, `gap` where the list has to be read again, and `state`.
 *
 * The state is `{name, since, error}` with a name of `off`, `connecting`, `live`, `reconnecting`,
 * `stale` or `refused`; the page decides whether to show its builds.
 */
export class LiveFeed extends EventTarget {
  #owner = "";
  #lastEventId = "";
  #ending = null;
  #attempt = null;
  #watch = 0;
  #heard = 0;
  state = { name: "off", since: Date.now(), error: null };

  /** Listen for an owner from now on, and for no other one. */
  start(owner) {
    this.stop();
    this.#owner = owner;
    this.#lastEventId = "";
    this.#ending = new AbortController();
    this.#turn("connecting");
    this.#run(this.#ending.signal);
  }

  /** Stop listening. */
  stop() {
    this.#ending?.abort();
    this.#ending = null;
    clearTimeout(this.#watch);
    this.#turn("off");
  }

  async #run(signal) {
    let wait = FIRST_WAIT;
    while (!signal.aborted) {
      try {
        for await (const frame of this.#frames(signal)) {
          wait = FIRST_WAIT;
          this.#take(frame);
        }
      } catch (error) {
        if (signal.aborted) return;
        if (error.status && !error.retryable) return this.#turn("refused", { error });
      }
      if (signal.aborted) return;
      clearTimeout(this.#watch);
      if (this.state.name !== "stale") this.#turn("reconnecting");
      await pause(wait, signal);
      wait = Math.min(wait * 2, LONGEST_WAIT);
    }
  }

  #frames(ending) {
    this.#attempt = new AbortController();
    this.#watchOver();
    const signal = AbortSignal.any([ending, this.#attempt.signal]);
    return listen("/v1/live", { owner: this.#owner, signal, lastEventId: this.#lastEventId });
  }

  /** Give up an attempt that stays silent: a connection may be gone without an end. */
  #watchOver() {
    clearTimeout(this.#watch);
    this.#watch = setTimeout(() => {
      if (this.state.name === "live") this.#turn("stale", { since: this.#heard });
      this.#attempt.abort();
    }, SILENCE);
  }

  #take(frame) {
    this.#turn("live");
    this.#watchOver();
    this.#heard = Date.now();
    if (frame.id) this.#lastEventId = frame.id;
    if (frame.event === "gap") this.dispatchEvent(new CustomEvent("gap"));
    if (frame.event === "build") {
      this.dispatchEvent(new CustomEvent("build", { detail: JSON.parse(frame.data) }));
    }
  }

  #turn(name, { since = Date.now(), error = null } = {}) {
    if (name === this.state.name) return;
    this.state = { name, since, error };
    this.dispatchEvent(new CustomEvent("state"));
  }
}

function pause(milliseconds, signal) {
  return new Promise((resolve) => {
    const timer = setTimeout(resolve, milliseconds);
    signal.addEventListener("abort", () => (clearTimeout(timer), resolve()), { once: true });
  });
}
