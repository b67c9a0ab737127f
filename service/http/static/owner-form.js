/** <owner-form>: the owner to show, and the token. */

import { token } from "./api.js";
import { el } from "./dom.js";

class OwnerForm extends HTMLElement {
  #owner = el("input", {
    name: "owner",
    autocomplete: "off",
    spellcheck: "false",
    required: true,
    maxlength: 128,
  });
  #token = el("input", {
    type: "password",
    name: "token",
    autocomplete: "off",
    placeholder: "if the worker has one",
  });

  connectedCallback() {
    if (this.children.length) return;
    this.#token.value = token.get();
    const onsubmit = (event) => {
      event.preventDefault();
      token.set(this.#token.value.trim());
      this.onchoose?.(this.#owner.value);
    };
    this.append(
      el(
        "form",
        { onsubmit, "aria-label": "Whose builds" },
        el("label", { class: "field" }, el("span", {}, "Owner key"), this.#owner),
        el("label", { class: "field" }, el("span", {}, "Token"), this.#token),
        el("button", { class: "primary" }, "Open"),
      ),
    );
  }

  /** Show whose builds the page has. */
  show(owner) {
    // what somebody types stays, until it is the link that changes
    if (this.#owner.dataset.shown !== owner) this.#owner.value = owner;
    this.#owner.dataset.shown = owner;
  }

  /** Go to the owner's key. */
  focus() {
    this.#owner.focus();
  }
}

customElements.define("owner-form", OwnerForm);
