// The built-in page: a member signs in, talks to an agent, sends files and gets files back.
//
// Rules that hold everywhere below: what comes from the service reaches the document only as text (textContent or
// text nodes; the policy enforces Trusted Types, so there is no other way), a file's link is built from typed fields
// and never from message text, and leaving a conversation never stops its turn.
//
// Sections: tools · text · requests · event streams · state · answers · conversation · composer · files · sign-in.

// ---------------------------------------------------------------- tools

const $ = (id) => document.getElementById(id);

/** A new element with properties and children; a child that is null is left out. */
function el(tag, properties = {}, ...children) {
  const element = Object.assign(document.createElement(tag), properties);
  element.append(...children.filter((child) => child !== null));
  return element;
}

/** Put a text into a line that is hidden while it has none. */
function tell(element, text) {
  element.textContent = text;
  element.hidden = text === "";
}

/** The paper-clip of the composer once more, so that it looks the same without a font that has it. */
const clip = () => $("attach").querySelector("svg").cloneNode(true);

function sizeInWords(bytes) {
  if (bytes < 1000) return `${bytes} B`;
  const units = ["kB", "MB", "GB", "TB"];
  const power = Math.min(Math.floor(Math.log10(bytes) / 3), units.length);
  return `${(bytes / 1000 ** power).toFixed(1)} ${units[power - 1]}`;
}

/** 128 random bits as hex. crypto.randomUUID would need https; this does not. */
function randomId() {
  const bytes = crypto.getRandomValues(new Uint8Array(16));
  return Array.from(bytes, (byte) => byte.toString(16).padStart(2, "0")).join("");
}

// ---------------------------------------------------------------- text

// Bidi controls end a link: they could make one address look like another.
const LINK = /\b(?:https?:\/\/|mailto:)[^\s<>"'`\u202a-\u202e\u2066-\u2069]+/gi;

/** Text as it is, with its http(s) and mailto addresses made clickable. */
function textWithLinks(text) {
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
function splitAttachments(content) {
  const lines = content.split("\n");
  const paths = lines.map((line) => ATTACHMENT_LINE.exec(line)?.[1]).filter((path) => path !== undefined);
  return { text: lines.filter((line) => !ATTACHMENT_LINE.test(line)).join("\n").trim(), paths };
}

// ---------------------------------------------------------------- requests

/** The service said no (its error body), or could not be asked (status 0). */
class Refused extends Error {
  constructor(status, { code, message }) {
    super(message);
    this.status = status;
    this.code = code;
  }
}

const UNREACHABLE = { code: "unreachable", message: "The service cannot be reached. Check the connection and try again." };

/** The error body of an answer, or a stand-in when something between us and the service answered. */
function refusal(status, text) {
  try {
    const { code, message } = JSON.parse(text).error;
    return new Refused(status, { code, message });
  } catch {
    return new Refused(status, { code: `http_${status}`, message: `The service answered with status ${status}.` });
  }
}

function address(path, query = {}) {
  const given = Object.entries(query).filter(([, value]) => value !== null && value !== undefined);
  return given.length ? `${path}?${new URLSearchParams(given)}` : path;
}

/** One request; the response if it succeeded. Throws Refused, or AbortError when `signal` ended it. */
async function request(method, path, { query, json, headers = {}, signal } = {}) {
  const body = json === undefined ? undefined : JSON.stringify(json);
  const type = body === undefined ? {} : { "Content-Type": "application/json" };
  let response;
  try {
    const all = { "X-Isthmus-Client": "page", ...type, ...headers };
    response = await fetch(address(path, query), { method, body, headers: all, signal });
  } catch (problem) {
    if (problem.name === "AbortError") throw problem;
    throw new Refused(0, UNREACHABLE);
  }
  if (response.ok) return response;
  const refused = refusal(response.status, await response.text());
  if (refused.status === 401 && !$("app").hidden) showSignIn("You are no longer signed in.");
  throw refused;
}

async function requestJson(method, path, options) {
  return (await request(method, path, options)).json();
}

/** Run an action; what the service refuses is shown in `line`, and an ended visit is no news. */
async function reporting(line, action) {
  try {
    tell(line, "");
    await action();
  } catch (problem) {
    if (problem.name === "AbortError") return;
    if (!(problem instanceof Refused)) throw problem;
    tell(line, problem.message);
  }
}

/** POST one file with its progress (XMLHttpRequest, as fetch tells none of a request's body). */
function upload(fields, file, { signal, onProgress }) {
  const form = new FormData();
  for (const [name, value] of Object.entries(fields)) form.append(name, value);
  form.append("file", file, file.name);
  return new Promise((resolve, reject) => {
    const transfer = new XMLHttpRequest();
    transfer.open("POST", "/v1/media");
    transfer.setRequestHeader("X-Isthmus-Client", "page");
    transfer.upload.onprogress = (event) => onProgress(event.loaded, event.total);
    transfer.onload = () =>
      transfer.status === 200
        ? resolve(JSON.parse(transfer.responseText))
        : reject(refusal(transfer.status, transfer.responseText));
    transfer.onerror = () => reject(new Refused(0, UNREACHABLE));
    transfer.onabort = () => reject(signal.reason);
    signal.addEventListener("abort", () => transfer.abort());
    transfer.send(form);
  });
}

// ---------------------------------------------------------------- event streams

/** The stream ended without its terminal: the connection was lost, the turn was not. */
class Cut extends Error {}

/** The `data` of each event of a text/event-stream body; comments and other fields are passed over. */
async function* eventData(body) {
  const reader = body.pipeThrough(new TextDecoderStream()).getReader();
  let rest = "";
  let data = [];
  for (;;) {
    const { value, done } = await reader.read();
    if (done) return;
    const lines = (rest + value).split("\n");
    rest = lines.pop();
    for (const line of lines.map((raw) => raw.replace(/\r$/, ""))) {
      if (line.startsWith("data:")) data.push(line.slice(5).replace(/^ /, ""));
      else if (line === "" && data.length) {
        yield data.join("\n");
        data = [];
      }
    }
  }
}

/** The chunks of one turn up to `[DONE]`. Throws Cut when the stream ends before it. */
async function* chunksOf(response) {
  try {
    for await (const data of eventData(response.body)) {
      if (data === "[DONE]") return;
      yield JSON.parse(data);
    }
  } catch (problem) {
    if (problem instanceof TypeError) throw new Cut(); // how fetch tells that the socket went away
    throw problem;
  }
  throw new Cut();
}

// ---------------------------------------------------------------- state

const HISTORY_LIMIT = 500; // the most that one request of history gives
const MESSAGES_SENT = 200; // agents without a memory of their own are sent the latest of the conversation

const state = {
  agent: "",
  session: "",
  visit: new AbortController(), // ends what is being read when another conversation is opened
  said: [], // {role, content} of the open conversation
  loading: false, // its past is on its way
};

/** Where requests of this view belong. */
const here = () => ({ agent: state.agent });

/** The address of a file of the public directory. */
const fileAddress = (path) => address("/v1/media", { path, ...here() });

const sessionKey = () => `isthmus.session.${state.agent}`;

// ---------------------------------------------------------------- answers

const REASONS = {
  foreign_reference: "the agent pointed to a place it may not deliver from",
  redirect: "the agent's address led elsewhere",
  bad_name: "its name cannot be used",
  undecodable_name: "its name cannot be read",
  too_many: "too many files in one answer",
  too_large: "it is too large",
  timeout: "it took too long",
  cut: "it arrived incomplete",
  no_space: "there is no space left",
  store_failed: "it could not be stored",
  interrupted: "the service was stopped meanwhile",
};

function deliveryItem({ state: outcome, name, path, size, reason }) {
  if (outcome !== "stored") {
    const why = REASONS[reason] ?? reason;
    return el("li", { className: "failed", textContent: `⚠ ${name} could not be delivered: ${why}` });
  }
  const link = el("a", { href: fileAddress(path), download: name, textContent: name });
  return el("li", {}, clip(), link, el("span", { className: "size", textContent: sizeInWords(size) }));
}

const problemLine = ({ code, message }) => el("p", { className: "problem", textContent: `${message} (${code})` });

/** Keep the end of the conversation in view while it is being read there. */
function following(change) {
  const log = $("messages");
  const atEnd = log.scrollHeight - log.scrollTop - log.clientHeight < 80;
  change();
  if (atEnd) log.scrollTop = log.scrollHeight;
}

function showQuestion(content) {
  const { text, paths } = splitAttachments(content);
  const names = paths.map((path) => el("li", { title: path }, clip(), path.split("/").pop()));
  const body = text === "" ? null : el("div", { className: "body", dir: "auto" }, textWithLinks(text));
  const list = names.length ? el("ul", { className: "deliveries" }, ...names) : null;
  const who = el("h3", { className: "unseen", textContent: "You" });
  const article = el("article", { className: "question" }, who, body, list);
  $("messages").append(article);
  article.scrollIntoView({ block: "end" });
}

/** One answer in the conversation, written as its chunks come. */
class Answer {
  constructor() {
    this.activity = el("p", { className: "activity", textContent: "Waiting for the agent" });
    this.stepList = el("ol");
    this.stepCount = el("summary");
    this.steps = el("details", { className: "steps", hidden: true }, this.stepCount, this.stepList);
    this.body = el("div", { className: "body", dir: "auto" });
    this.deliveries = el("ul", { className: "deliveries" });
    this.notes = el("div");
    this.element = el("article", { className: "answer", ariaBusy: "true" });
    this.element.append(el("h3", { className: "unseen", textContent: state.agent }), this.steps, this.body);
    this.element.append(this.deliveries, this.notes, this.activity);
    this.text = this.body.appendChild(document.createTextNode(""));
    following(() => $("messages").append(this.element));
  }

  take(chunk) {
    following(() => {
      if (chunk.x_crab_delivery) this.deliver(chunk.x_crab_delivery);
      else if (chunk.x_crab_error) this.fail(chunk.x_crab_error);
      else if (chunk.x_crab_progress) this.progress(chunk.x_crab_progress);
      else if (chunk.x_crab_steering) this.steer(chunk.x_crab_steering);
      else if (chunk.x_crab_gap) this.note("A part of this answer can no longer be shown here.");
      else this.write(chunk.choices[0]?.delta.content ?? "");
    });
  }

  write(content) {
    if (content === "") return;
    this.text.appendData(this.text.length ? content : content.trimStart());
    this.activity.textContent = "Writing";
  }

  deliver(delivery) {
    this.deliveries.append(deliveryItem(delivery));
    refreshFiles();
  }

  fail(error) {
    this.notes.append(problemLine(error));
  }

  note(text) {
    this.notes.append(el("p", { className: "note", textContent: text }));
  }

  steer({ folded }) {
    this.note(folded ? "Added to the answer that is being written." : "Waits until the running answer is over.");
  }

  progress({ kind, text, tool, state: phase }) {
    if (kind === "typing" || kind === "placeholder") this.activity.textContent = text || "Working";
    else if (kind === "retracted") this.note("The agent took a part of this answer back.");
    else this.step(kind, [tool, phase, text].filter(Boolean).join(" · "));
  }

  /** A thought or a tool; a thought that goes on replaces its shorter self. */
  step(kind, text) {
    this.activity.textContent = kind === "tool" ? `Using ${text}` : "Thinking";
    const last = this.stepList.lastElementChild;
    if (kind === "thought" && last?.className === kind && text.startsWith(last.textContent)) last.textContent = text;
    else this.stepList.append(el("li", { className: kind, textContent: text }));
    const count = this.stepList.childElementCount;
    this.stepCount.textContent = count === 1 ? "1 step" : `${count} steps`;
    this.steps.hidden = false;
  }

  end() {
    following(() => {
      this.body.replaceChildren(textWithLinks(this.text.data.trimEnd()));
      this.activity.remove();
    });
    this.element.ariaBusy = "false";
  }
}

function showPastAnswer({ content, deliveries = [], error }) {
  const answer = new Answer();
  answer.write(content);
  answer.deliveries.append(...deliveries.map(deliveryItem));
  if (error) answer.fail(error);
  answer.end();
}

// ---------------------------------------------------------------- conversation

const LOST = { code: "connection_lost", message: "The connection was lost. The agent goes on: reload to see its answer." };

/** Send one message of the member and show its answer; true if a turn began. */
async function ask(content) {
  const { signal } = state.visit;
  const question = { role: "user", content };
  const messages = [...state.said.slice(-MESSAGES_SENT), question];
  showQuestion(content);
  const answer = new Answer();
  let began = false;
  try {
    const json = { model: state.agent, messages, stream: true, session_id: state.session };
    const response = await request("POST", "/v1/chat/completions", { json, signal });
    began = true;
    state.said.push(question);
    for await (const chunk of chunksOf(response)) answer.take(chunk);
    state.said.push({ role: "assistant", content: answer.text.data });
  } catch (problem) {
    if (signal.aborted) return true;
    if (!(problem instanceof Cut || problem instanceof Refused)) throw problem;
    answer.fail(problem instanceof Cut ? LOST : problem);
  } finally {
    answer.end();
  }
  refreshFiles();
  return began;
}

/** Leave the open conversation (its turns go on) and show another. */
async function openConversation(session) {
  state.visit.abort();
  state.visit = new AbortController();
  const { signal } = state.visit;
  Object.assign(state, { session, said: [], loading: true });
  updateSend();
  localStorage.setItem(sessionKey(), session);
  $("messages").replaceChildren();
  await reporting($("composer-problem"), () => showPast(session, signal));
  if (signal.aborted) return; // another conversation is loading by now
  state.loading = false;
  updateSend();
}

async function showPast(session, signal) {
  for (const message of await pastMessages(session, signal)) {
    if (message.role === "user") showQuestion(message.content);
    else showPastAnswer(message);
    state.said.push({ role: message.role, content: message.content });
  }
  $("messages").scrollTop = $("messages").scrollHeight;
}

async function pastMessages(session, signal) {
  const query = { ...here(), session_id: session, limit: HISTORY_LIMIT };
  try {
    return (await requestJson("GET", "/v1/sessions/history", { query, signal })).messages;
  } catch (problem) {
    if (problem.code === "not_found") return []; // nothing was said in it yet
    throw problem;
  }
}

// ---------------------------------------------------------------- composer

const parcels = new Set(); // files chosen for the message being written
let lastUpload = Promise.resolve(); // one file after the other

/** Begin to upload a chosen file and show how far it is. */
function attachFile(file) {
  const progress = el("progress", { max: 1, value: 0, ariaLabel: `Upload of ${file.name}` });
  const outcome = el("span", { className: "size", textContent: sizeInWords(file.size) });
  const remove = el("button", { type: "button", textContent: "×", ariaLabel: `Remove ${file.name}` });
  const name = el("span", { className: "name", textContent: file.name });
  const item = el("li", {}, name, outcome, progress, remove);
  const parcel = { file, item, progress, outcome, abort: new AbortController(), toldPath: null, settled: false };
  remove.onclick = () => {
    parcel.abort.abort();
    dropParcel(parcel);
  };
  parcels.add(parcel);
  $("attachments").append(item);
  lastUpload = lastUpload.then(() => sendParcel(parcel));
  updateSend();
}

function dropParcel(parcel) {
  parcels.delete(parcel);
  parcel.item.remove();
  updateSend();
}

async function sendParcel(parcel) {
  const { abort, file, progress } = parcel;
  if (abort.signal.aborted) return;
  const onProgress = (sent, total) => (progress.value = sent / total);
  try {
    const receipt = await upload(here(), file, { signal: abort.signal, onProgress });
    parcel.toldPath = receipt.told_path;
    parcel.outcome.textContent = receipt.replaced ? "replaced the earlier file" : "uploaded";
  } catch (problem) {
    if (abort.signal.aborted) return;
    parcel.item.classList.add("failed");
    parcel.outcome.textContent = problem.message;
    parcel.outcome.role = "alert";
  }
  parcel.settled = true;
  progress.remove();
  updateSend();
  refreshFiles();
}

function updateSend() {
  $("send").disabled = state.loading || [...parcels].some((parcel) => !parcel.settled);
}

async function sendMessage() {
  const text = $("text").value.trim();
  const ready = [...parcels].filter((parcel) => parcel.toldPath !== null);
  if ($("send").disabled || (text === "" && ready.length === 0)) return;
  const lines = ready.map((parcel) => `[attachment: ${parcel.toldPath}]`).join("\n");
  $("text").value = "";
  ready.forEach(dropParcel);
  const began = await ask([text, lines].filter(Boolean).join("\n\n"));
  if (began) return;
  // Refused before a turn began: the message goes back where it can be sent again.
  $("text").value ||= text;
  for (const parcel of ready) {
    parcels.add(parcel);
    $("attachments").append(parcel.item);
  }
}

// ---------------------------------------------------------------- files

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

// ---------------------------------------------------------------- sign-in

function showSignIn(problem = "") {
  state.visit.abort();
  $("app").hidden = true;
  $("sign-in").hidden = false;
  tell($("sign-in-problem"), problem);
  $("token").focus();
}

async function signIn() {
  const token = $("token").value.trim();
  if (!/^[\x21-\x7e]+$/.test(token)) {
    tell($("sign-in-problem"), "A token has letters, digits and signs only, and no spaces.");
    return;
  }
  await reporting($("sign-in-problem"), async () => {
    await request("POST", "/v1/sign-in", { headers: { Authorization: `Bearer ${token}` } });
    $("token").value = "";
    await start();
  });
}

async function signOut() {
  await reporting($("composer-problem"), async () => {
    await request("DELETE", "/v1/sign-in");
    location.reload(); // nothing of the member's stays in the window
  });
}

async function chooseAgent(agent) {
  state.agent = agent;
  $("agent").value = agent;
  localStorage.setItem("isthmus.agent", agent);
  [...parcels].forEach(dropParcel); // they lie in the other agent's workspace
  files.entries = [];
  await openConversation(localStorage.getItem(sessionKey()) ?? randomId());
  await refreshFiles();
}

/** Show the conversation if the browser is signed in, else the sign-in form. */
async function start() {
  const { data } = await requestJson("GET", "/v1/models");
  const agents = data.map((model) => model.id);
  $("sign-in").hidden = true;
  $("app").hidden = false;
  if (agents.length === 0) {
    tell($("composer-problem"), "You may use no agent yet. Ask your operator.");
    return;
  }
  $("agent").replaceChildren(...agents.map((agent) => el("option", { value: agent, textContent: agent })));
  $("agent-choice").hidden = agents.length === 1;
  const last = localStorage.getItem("isthmus.agent");
  await chooseAgent(agents.includes(last) ? last : agents[0]);
  $("text").focus();
}

function openPanel(open) {
  $("app").classList.toggle("panel-open", open);
  $("panel-toggle").ariaExpanded = String(open);
}

function onSubmit(id, action) {
  $(id).addEventListener("submit", (event) => {
    event.preventDefault();
    action();
  });
}

onSubmit("sign-in-form", signIn);
onSubmit("composer", sendMessage);
$("sign-out").onclick = signOut;
$("agent").onchange = (event) => chooseAgent(event.target.value);
$("new-conversation").onclick = () => {
  openPanel(false);
  openConversation(randomId());
  $("text").focus();
};
$("panel-toggle").onclick = () => openPanel(!$("app").classList.contains("panel-open"));
$("files-refresh").onclick = refreshFiles;
$("files-more").onclick = moreFiles;
$("attach").onclick = () => $("file-choice").click();
$("file-choice").onchange = (event) => {
  [...event.target.files].forEach(attachFile);
  event.target.value = "";
};
$("text").onkeydown = (event) => {
  if (event.key !== "Enter" || event.shiftKey || event.isComposing) return;
  event.preventDefault();
  sendMessage();
};

start().catch((problem) => showSignIn(problem.status === 401 ? "" : problem.message));
