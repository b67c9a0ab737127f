/** What a context is made of: each block with its name, its colour and a sentence. */

const BLOCKS = {
  CORE_IDENTITY: ["Identity", "identity", "The system message: who the model is, and its rules"],
  CAPABILITIES: ["Capabilities", "capabilities", "What the tools can do, as text"],
  tools: ["Tool definitions", "tools", "The array of tools, as the API takes it"],
  SUMMARY: ["Summary", "summary", "A summary of earlier turns"],
  RECALLED: ["Recalled", "recalled", "Older turns that are relevant to the current input"],
  SHARED_MEMORY: ["History", "history", "Earlier turns, as the memory block prints them"],
  HISTORY: ["History", "history", "Earlier turns, as native messages"],
  FRIENDS_INFO: ["Profile", "friends", "What is remembered about the owner"],
  RUN: ["Run", "run", "Calls and results of the run that is being built"],
  THIS_MOMENT: ["This moment", "moment", "The time, and the current input"],
};
const ORDER = Object.keys(BLOCKS);

/** Return how a block is shown: `{tag, label, color, about}`; one of a request has its own tag. */
export function blockOf(tag) {
  const known = Object.hasOwn(BLOCKS, tag) ? BLOCKS[tag] : null;
  const [label, name, about] = known ?? [tag, "custom", "A block that the request brought along"];
  return { tag, label, color: `var(--block-${name})`, about };
}

/**
 * Return the parts of a context's window, in the order in which they are sent:
 * `{tag, label, color, about, tokens}`, the reserve and the free space last.
 */
export function partsOf(usage) {
  const sent = [...Object.entries(usage.blocks), ["tools", usage.tools]]
    .filter(([, tokens]) => tokens > 0)
    .sort(([a], [b]) => placeOf(a) - placeOf(b))
    .map(([tag, tokens]) => ({ ...blockOf(tag), tokens }));
  const free = usage.available - usage.total;
  return [
    ...sent,
    {
      tag: "free",
      label: "Free",
      color: "transparent",
      about: "Tokens that are not used",
      tokens: Math.max(free, 0),
    },
    {
      tag: "reserve",
      label: "Reserve",
      color: "var(--block-reserve)",
      about: "Reserved for the answer",
      tokens: usage.reserve,
    },
  ].filter(({ tokens }) => tokens > 0);
}

function placeOf(tag) {
  const place = ORDER.indexOf(tag);
  // blocks of a request precede the current input
  return place < 0 ? ORDER.indexOf("RUN") - 0.5 : place;
}
