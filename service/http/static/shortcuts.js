/** Keyboard shortcuts for frequent actions, with a list of them and a switch to turn them off. */

import { el } from "./dom.js";

const OFF = "ctxb.shortcuts-off";
const FIELDS = "input, select, textarea, [contenteditable]";

/**
 * Listen for single keys. `actions` are `[name, action]` by key; `?` lists them. Returns a function
 * that opens the list.
 */
export function shortcuts(actions) {
  const dialog = listOf(actions);
  document.body.append(dialog);
  const open = () => dialog.showModal();
  document.addEventListener("keydown", (event) => {
    const busy = event.altKey || event.ctrlKey || event.metaKey || event.target.closest?.(FIELDS);
    if (busy || dialog.open || localStorage.getItem(OFF)) return;
    const action = event.key === "?" ? open : actions[event.key]?.[1];
    if (!action) return;
    event.preventDefault();
    action();
  });
  return open;
}

function listOf(actions) {
  const keys = [...Object.entries(actions).map(([key, [name]]) => [key, name]), ["?", "This list"]];
  const onchange = ({ target }) =>
    target.checked ? localStorage.removeItem(OFF) : localStorage.setItem(OFF, "1");
  return el(
    "dialog",
    { "aria-labelledby": "keys-title" },
    el("h2", { id: "keys-title" }, "Keys"),
    el(
      "dl",
      { class: "keys" },
      keys.map(([key, name]) =>
        el("div", {}, el("dt", {}, el("kbd", {}, key)), el("dd", {}, name)),
      ),
    ),
    el(
      "label",
      { class: "switch" },
      el("input", { type: "checkbox", checked: !localStorage.getItem(OFF), onchange }),
      "Use these keys",
    ),
    el("form", { method: "dialog" }, el("button", { class: "primary" }, "Close")),
  );
}
