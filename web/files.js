// The files of the open place.

import { $, el, sizeInWords, tell } from "./dom.js";
import { address, reporting, requestJson } from "./service.js";
import { here, news } from "./state.js";

/** The address of a file of the public directory: from its path alone, never from the text of a message. */
export const fileAddress = (path) => address("/v1/media", { path, ...here() });

const files = { entries: [], cursor: null, reading: new AbortController() };

/** Read the list again, as far as it was shown. */
function refreshFiles() {
  return readFiles({ entries: [], cursor: null }, files.entries.length);
}

function moreFiles() {
  return readFiles(files, files.entries.length + 1);
}

/** Read pages after `start` until `wanted` entries are there; a newer reading ends an older one. */
async function readFiles({ entries, cursor }, wanted) {
  files.reading.abort();
  files.reading = new AbortController();
  const { signal } = files.reading;
  await reporting($("files-note"), async () => {
    let all = entries;
    let omitted = {};
    do {
      const page = await requestJson("GET", "/v1/media", { query: { ...here(), cursor }, signal });
      all = all.concat(page.files);
      ({ next_cursor: cursor, omitted } = page);
    } while (cursor !== null && all.length < wanted);
    Object.assign(files, { entries: all, cursor });
    $("files").replaceChildren(...folderParts(all));
    $("files-more").hidden = cursor === null;
    tell($("files-note"), filesNote(all, omitted));
  });
}

function filesNote(entries, omitted) {
  const hidden = Object.values(omitted ?? {}).reduce((sum, count) => sum + count, 0);
  if (hidden > 0) return `${hidden} more that are no ordinary files are not shown.`;
  return entries.length === 0 ? "No files yet. Attach one to a message." : "";
}

const parentOf = (path) => path.slice(0, path.lastIndexOf("/"));

/** The files folder by folder, each under its path. */
function folderParts(entries) {
  const folders = new Map([["public", []]]); // first, though its files may come after those of its folders
  for (const entry of entries) {
    const folder = entry.isDir ? entry.path : parentOf(entry.path);
    if (!folders.has(folder)) folders.set(folder, []);
    if (!entry.isDir) folders.get(folder).push(entry);
  }
  if (folders.get("public").length === 0) folders.delete("public");
  return [...folders].map(([path, members]) => {
    const content = members.length
      ? el("ul", {}, ...members.map(fileItem))
      : el("p", { className: "note", textContent: "empty" });
    return el("div", {}, el("h3", { textContent: path }), content);
  });
}

function fileItem({ path, name, size, modified }) {
  const link = el("a", { href: fileAddress(path), download: name, textContent: name });
  const when = new Date(modified).toLocaleString();
  return el("li", { title: when }, link, el("span", { className: "size", textContent: sizeInWords(size) }));
}

export function startFiles() {
  news.addEventListener("place", () => {
    Object.assign(files, { entries: [], cursor: null });
    $("files").replaceChildren();
    $("files-more").hidden = true;
    refreshFiles();
  });
  news.addEventListener("files", refreshFiles);
  $("files-refresh").onclick = refreshFiles;
  $("files-more").onclick = moreFiles;
}
