/** Tabs as WAI-ARIA has them: one stop for the keyboard, arrows between them, Home and End. */

import { el } from "./dom.js";

const STEPS = {
  ArrowRight: (at, last) => (at === last ? 0 : at + 1),
  ArrowLeft: (at, last) => (at === 0 ? last : at - 1),
  Home: () => 0,
  End: (_at, last) => last,
};
let made = 0;

/**
 * Return tabs with their panel. `names` are labels by key, `show(key)` returns the content of the
 * panel, and `onchoose(key)` is called on a choice. The element's `choose(key)` chooses a tab.
 */
export function tabs({ label, names, chosen, show, onchoose = () => {}, kind = "" }) {
  const prefix = `tabs-${(made += 1)}`;
  const keys = Object.keys(names);
  const panel = el("div", { role: "tabpanel", id: `${prefix}-panel`, tabindex: "0" });
  const buttons = keys.map((key) =>
    el(
      "button",
      {
        type: "button",
        role: "tab",
        id: `${prefix}-${key}`,
        "aria-controls": panel.id,
        onclick: () => pick(key),
      },
      names[key],
    ),
  );
  let current = null;
  const choose = (key) => {
    // a link that names it again doesn't draw it again
    if (key === current) return;
    current = key;
    for (const [place, button] of buttons.entries()) {
      const on = keys[place] === key;
      button.setAttribute("aria-selected", on);
      button.tabIndex = on ? 0 : -1;
    }
    panel.setAttribute("aria-labelledby", `${prefix}-${key}`);
    panel.replaceChildren(show(key));
  };
  const pick = (key) => {
    choose(key);
    onchoose(key);
  };
  const onkeydown = (event) => {
    const step = STEPS[event.key];
    if (!step || event.altKey || event.ctrlKey || event.metaKey) return;
    event.preventDefault();
    const next = step(buttons.indexOf(event.target), buttons.length - 1);
    buttons[next].focus();
    pick(keys[next]);
  };
  const list = el("div", { role: "tablist", "aria-label": label, onkeydown }, buttons);
  const whole = el("div", { class: `tabs ${kind}` }, list, panel);
  whole.choose = choose;
  choose(chosen);
  return whole;
}
