/** <connection-badge>: whether what is shown is what there is, and since when it may not be. */

import { el } from "./dom.js";
import { clock } from "./format.js";

const TEXTS = {
  off: () => "Not connected",
  connecting: () => "Connecting",
  live: () => "Live",
  reconnecting: ({ since }) => `Reconnecting since ${clock(since)}`,
  stale: ({ since }) => `Stale: nothing heard since ${clock(since)}`,
  refused: ({ error }) => `Refused: ${error.title}`,
  paused: ({ since, waiting, lost }) =>
    [`Paused since ${clock(since)}`, waiting && `${waiting} new`, lost && "not connected"]
      .filter(Boolean)
      .join(" · "),
};

class ConnectionBadge extends HTMLElement {
  #text = el("span");

  connectedCallback() {
    this.setAttribute("role", "status");
    this.replaceChildren(el("span", { class: "dot", "aria-hidden": "true" }), this.#text);
  }

  /** Show a state of `LiveFeed`, or `paused` with how many builds wait to be shown. */
  show(state) {
    this.dataset.state = state.name;
    const text = TEXTS[state.name](state);
    // written only where it changes, so that it is read out once
    if (this.#text.textContent !== text) this.#text.textContent = text;
  }
}

customElements.define("connection-badge", ConnectionBadge);
