/** <theme-switch>: light, dark, or as the system has it; this browser remembers. */

import { el } from "./dom.js";

const THEMES = { system: "System", light: "Light", dark: "Dark" };

class ThemeSwitch extends HTMLElement {
  connectedCallback() {
    const chosen = document.documentElement.dataset.theme;
    const options = Object.entries(THEMES).map(([value, name]) =>
      el("option", { value, selected: value === chosen }, name),
    );
    const onchange = ({ target }) => choose(target.value);
    this.replaceChildren(
      el(
        "label",
        {},
        el("span", { class: "unseen" }, "Colours"),
        el("select", { onchange }, options),
      ),
    );
  }
}

function choose(theme) {
  document.documentElement.dataset.theme = theme;
  localStorage.setItem("ctxb.theme", theme);
}

customElements.define("theme-switch", ThemeSwitch);
