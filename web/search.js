// Search in the open project: the passages found, each with its citation.

import { $, counted, el, onSubmit, tell } from "./dom.js";
import { reporting, requestJson } from "./service.js";
import { news, place, projectAddress } from "./state.js";
import { textWithMarks } from "./text.js";

let asking = new AbortController(); // a newer question ends an older one

async function search() {
  const query = $("query").value.trim();
  asking.abort();
  asking = new AbortController();
  const { signal } = asking;
  $("hits").replaceChildren();
  tell($("search-note"), "");
  await reporting($("search-problem"), async () => {
    const answer = await requestJson("POST", projectAddress("rag", "search"), { json: { query }, signal });
    $("hits").replaceChildren(...answer.hits.map((hit) => hitItem(hit, query)));
    tell($("search-note"), noteOf(answer));
  });
}

function noteOf({ hits, searched, vector }) {
  if (Object.keys(searched).length === 0) return "Nothing is indexed here yet. Attach a folder below.";
  const found = hits.length ? `${counted(hits.length, "passage")} found.` : "No passage has these words.";
  return vector.available ? found : `${found} Words only: ${vector.reason}.`;
}

function hitItem({ excerpt, origin }, query) {
  const headings = origin.heading_path?.length ? origin.heading_path.join(" › ") : null;
  return el(
    "li",
    {},
    el("h3", {}, ...sourceOf(origin)),
    headings && el("p", { className: "headings", dir: "auto", textContent: headings }),
    el("blockquote", { dir: "auto" }, textWithMarks(excerpt, query)),
  );
}

function sourceOf(origin) {
  if (origin.kind === "session") return [origin.title ?? "A conversation"];
  const { source_path, start_line: start, end_line: end } = origin;
  const lines = start === end ? `line ${start}` : `lines ${start}–${end}`;
  return [source_path, " ", el("span", { className: "size", textContent: lines })];
}

export function startSearch() {
  news.addEventListener("place", () => {
    asking.abort();
    $("index").hidden = place.project === null;
    $("query").value = "";
    $("hits").replaceChildren();
    for (const id of ["search-note", "search-problem"]) tell($(id), "");
  });
  onSubmit("search-form", search);
}
