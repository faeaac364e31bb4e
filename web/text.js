// From text to nodes: links, the paths that a message names, the words that a search found.

import { el } from "./dom.js";

// Bidi controls end a link: they could make one address look like another.
const LINK = /\b(?:https?:\/\/|mailto:)[^\s<>"'`\u202a-\u202e\u2066-\u2069]+/gi;

/** Text as it is, with its http(s) and mailto addresses made clickable. */
export function textWithLinks(text) {
  const fragment = document.createDocumentFragment();
  let end = 0;
  for (const match of text.matchAll(LINK)) {
    const address = match[0].replace(/[.,;:!?*_)\]}]+$/, "");
    fragment.append(text.slice(end, match.index), ...linkTo(address));
    end = match.index + address.length;
  }
  fragment.append(text.slice(end));
  return fragment;
}

/** The link, followed by the host it really goes to unless the address says exactly that host itself. */
function linkTo(address) {
  if (!URL.canParse(address)) return [address];
  const url = new URL(address);
  const link = el("a", { href: url.href, textContent: address, target: "_blank", rel: "noopener noreferrer" });
  const written = /^https?:\/\/([^/?#]*)/i.exec(address)?.[1];
  const plain = url.protocol === "mailto:" || written === url.host;
  return plain ? [link] : [link, el("span", { className: "host", textContent: ` (${url.host})` })];
}

const ATTACHMENT_LINE = /^\[attachment: (.+)\]$/;

/** A member's message apart: what was written, and the paths its attachment lines name. */
export function splitAttachments(content) {
  const lines = content.split("\n");
  const paths = lines.map((line) => ATTACHMENT_LINE.exec(line)?.[1]).filter((path) => path !== undefined);
  return { text: lines.filter((line) => !ATTACHMENT_LINE.test(line)).join("\n").trim(), paths };
}

const fold = (word) => word.normalize("NFD").replace(/\p{M}/gu, "").toLowerCase();

// A dictionary's work for scripts without spaces; `und` cuts the others alike whatever the browser's language.
const words = new Intl.Segmenter("und", { granularity: "word" });

const ENDING = 3; // as many last letters may differ, for the index finds other forms of a word too
const STEM = 4; // and as many first letters must be the same

/** Whether a reader takes one for the other: `deploys` for `deploy`, and `userName` for `user`. */
function alike(word, asked) {
  if (word === asked) return true;
  if (Math.min(word.length, asked.length) < STEM) return false;
  if (word.includes(asked)) return true;
  let same = 0;
  while (same < word.length && word[same] === asked[same]) same += 1;
  return same >= STEM && Math.max(word.length, asked.length) - same <= ENDING;
}

const SMALL = /^\p{Ll}{1,3}$/u; // `the`, `de`, `и`: everywhere, and so they show nothing

/** The words of a question that are worth marking, folded: all but the small ones, unless it has no others. */
function wordsToMark(question) {
  const asked = [...words.segment(question)].filter((part) => part.isWordLike).map((part) => part.segment);
  const telling = asked.filter((word) => !SMALL.test(word));
  return (telling.length ? telling : asked).map(fold);
}

/** The text with each word that resembles one of the question's in a <mark>. */
export function textWithMarks(text, question) {
  const asked = wordsToMark(question);
  const fragment = document.createDocumentFragment();
  for (const { segment, isWordLike } of words.segment(text)) {
    const matched = isWordLike && asked.some((word) => alike(fold(segment), word));
    fragment.append(matched ? el("mark", { textContent: segment }) : segment);
  }
  fragment.normalize();
  return fragment;
}
