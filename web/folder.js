// The attached folder of the open project: what is indexed of it and what is not, attaching, detaching.

import { confirmed } from "./confirm.js";
import { $, counted, el, sizeInWords, tell } from "./dom.js";
import { folderForm } from "./folder-form.js";
import { reporting, request, requestJson, sendForm } from "./service.js";
import { news, place, projectAddress } from "./state.js";

const PATHS_SHOWN = 200; // of each group

const SKIPPED = {
  ignored: "ignored (dependencies, build output or .gitignore)",
  hidden: "hidden",
  extension: "not a kind of file that is indexed",
  too_large: "too large",
  binary: "not text",
  encoding: "in an encoding that cannot be read",
  empty: "empty",
  minified: "minified",
  secret: "looks like a secret",
  unreadable: "cannot be read",
};

const PARTIAL = {
  secret: "secrets are left out",
  encoding: "characters that cannot be stored are left out",
};

let visit = new AbortController(); // ends when another place is opened
let attaching = null; // the controller of the attach that runs

const address = () => projectAddress("rag", "local");

async function showAttached() {
  const { signal } = visit;
  await reporting($("folder-problem"), async () => {
    const status = await requestJson("GET", address(), { signal });
    const there = status.folder_name !== null;
    tell($("folder-status"), there ? statusLine(status) : "No folder is attached. Attach one to search in it.");
    $("folder-detach").hidden = !there;
    $("folder-choose").textContent = there ? "Replace the folder" : "Attach a folder";
    $("folder-files").replaceChildren(...groupsOf(status.files));
  });
}

function statusLine({ folder_name, attached_at, attached_by, files }) {
  const chunks = files.reduce((sum, file) => sum + file.chunks, 0);
  const when = new Date(attached_at).toLocaleString([], { dateStyle: "medium", timeStyle: "short" });
  return `${folder_name}: ${counted(chunks, "passage")}, attached ${when} by ${attached_by}`;
}

/** What became of a file, in words; files of the same words form a group. */
function outcomeOf({ state, reason }) {
  if (state === "skipped") return `Skipped: ${SKIPPED[reason] ?? reason}`;
  return state === "partial" ? `Indexed in part: ${PARTIAL[reason] ?? reason}` : "Indexed";
}

const ORDER = ["indexed", "partial", "skipped"];

function groupsOf(files) {
  const groups = new Map();
  for (const file of [...files].sort((one, other) => ORDER.indexOf(one.state) - ORDER.indexOf(other.state))) {
    const outcome = outcomeOf(file);
    if (!groups.has(outcome)) groups.set(outcome, []);
    groups.get(outcome).push(file);
  }
  return [...groups].map(([outcome, members]) => {
    const count = members.reduce((sum, file) => sum + file.files, 0);
    const number = el("span", { className: "size", textContent: count.toLocaleString("en") });
    const summary = el("summary", {}, outcome, " ", number);
    const items = members.slice(0, PATHS_SHOWN).map(fileItem);
    const rest = members.length - items.length;
    if (rest > 0) items.push(el("li", { className: "note", textContent: `and ${counted(rest, "more path")}` }));
    return el("details", {}, summary, el("ul", {}, ...items));
  });
}

function fileItem({ path, files, chunks }) {
  const count = chunks > 0 ? counted(chunks, "passage") : path.endsWith("/") ? counted(files, "file") : null;
  return el("li", {}, el("span", { textContent: path }), " ", count && el("span", { className: "size", textContent: count }));
}

/** Send a folder and show what became of it; while it runs it can be cancelled, and then nothing has changed. */
async function attach(files) {
  attaching = new AbortController();
  const { signal } = attaching;
  showProgress(true);
  tell($("folder-report"), "");
  await reporting($("folder-problem"), async () => {
    const limits = await requestJson("GET", projectAddress("rag", "limits"), { signal });
    const { form, folderName, bytes } = folderForm(files, limits);
    if (bytes > limits.max_body_bytes) {
      const most = sizeInWords(limits.max_body_bytes);
      tell($("folder-problem"), `${folderName} has ${sizeInWords(bytes)} to read; at most ${most} can be sent.`);
      return;
    }
    const report = await sendForm(address(), form, { signal, onProgress: showSent });
    const indexed = `${counted(report.files_indexed, "file")} indexed as ${counted(report.chunks_created, "passage")}`;
    tell($("folder-report"), `${report.folder_name}: ${indexed}, ${report.files_skipped.toLocaleString("en")} skipped.`);
    await showAttached();
  });
  if (attaching?.signal !== signal) return; // another place is open
  attaching = null;
  showProgress(false);
}

function showProgress(runs) {
  $("folder-progress").hidden = !runs;
  $("folder-choose").disabled = runs;
  $("folder-detach").disabled = runs;
  if (runs) showSent(0, 0);
}

function showSent(sent, total) {
  $("folder-sent").value = total ? sent / total : 0;
  const done = total > 0 && sent === total;
  $("folder-sent-words").textContent = done ? "Sent. Indexing…" : `${sizeInWords(sent)} of ${sizeInWords(total)} sent`;
}

async function detach() {
  const question = "Detach the folder? Its passages are no longer found. The folder on your disk stays as it is.";
  if (!(await confirmed(question, "Detach"))) return;
  tell($("folder-report"), "");
  await reporting($("folder-problem"), async () => {
    await request("DELETE", address());
    await showAttached();
  });
}

function openPlace() {
  visit.abort();
  attaching?.abort();
  attaching = null;
  visit = new AbortController();
  showProgress(false);
  for (const id of ["folder-status", "folder-report", "folder-problem"]) tell($(id), "");
  $("folder-files").replaceChildren();
  if (place.project) showAttached();
}

export function startFolder() {
  news.addEventListener("place", openPlace);
  $("folder-choose").onclick = () => $("folder-choice").click();
  $("folder-choice").onchange = (event) => {
    const files = [...event.target.files];
    event.target.value = "";
    if (files.length) attach(files);
  };
  $("folder-cancel").onclick = () => attaching?.abort();
  $("folder-detach").onclick = detach;
}
