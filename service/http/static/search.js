/** Search by words, as the lists of builds and of messages do. */

import { empty } from "./notices.js";

/** Return a text as a search compares it. */
function searchable(text) {
  return text.toLowerCase().replace(/\s+/g, " ").trim();
}

/** Return the terms of a search: its words, and texts in quotes as one term each. */
export function termsOf(text) {
  const found = searchable(text).matchAll(/"([^"]+)"?|\S+/g);
  return [...found].map(([word, quoted]) => quoted ?? word).filter((term) => /[^"]/.test(term));
}

/** Return whether a text has all terms, in any order. */
export function hasAll(terms, text) {
  const words = searchable(text);
  return terms.every((term) => words.includes(term));
}

/** Return the notice that a search has found nothing, and how it searches. */
export function nothingFound(what) {
  return empty(
    `No ${what} found`,
    `A ${what} is found if it has all of the words, in any order. Case doesn't matter, ` +
      'and words in "quotes" have to be next to each other.',
  );
}
