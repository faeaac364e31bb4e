// The message being written, and the files that go with it.

import { ask, openLastConversation, openNewConversation } from "./conversation.js";
import { $, el, onSubmit, sizeInWords } from "./dom.js";
import { sendForm } from "./service.js";
import { here, news, tellNews } from "./state.js";

const parcels = new Set(); // files chosen for the message
let lastUpload = Promise.resolve(); // one file after the other
let loading = 0; // conversations whose past is on its way

/** Begin to upload a chosen file into the open place and show how far it is. */
function attachFile(file) {
  const progress = el("progress", { max: 1, value: 0, ariaLabel: `Upload of ${file.name}` });
  const outcome = el("span", { className: "size", textContent: sizeInWords(file.size) });
  const remove = el("button", { type: "button", textContent: "×", ariaLabel: `Remove ${file.name}` });
  const name = el("span", { className: "name", textContent: file.name });
  const item = el("li", {}, name, outcome, progress, remove);
  const parcel = { form: formOf(file), item, progress, outcome, abort: new AbortController(), toldPath: null, settled: false };
  remove.onclick = () => dropParcel(parcel);
  parcels.add(parcel);
  $("attachments").append(item);
  lastUpload = lastUpload.then(() => sendParcel(parcel));
  updateSend();
}

function formOf(file) {
  const form = new FormData();
  for (const [name, value] of Object.entries(here())) form.append(name, value ?? "");
  form.append("file", file, file.name);
  return form;
}

function dropParcel(parcel) {
  parcel.abort.abort();
  parcels.delete(parcel);
  parcel.item.remove();
  updateSend();
}

async function sendParcel(parcel) {
  const { abort, form, progress } = parcel;
  if (abort.signal.aborted) return;
  const onProgress = (sent, total) => (progress.value = sent / total);
  try {
    const receipt = await sendForm("/v1/media", form, { signal: abort.signal, onProgress });
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
  tellNews("files");
}

function updateSend() {
  $("send").disabled = loading > 0 || [...parcels].some((parcel) => !parcel.settled);
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

/** Nothing can be sent into a conversation before its past is there. */
async function whileLoading(conversation) {
  loading += 1;
  updateSend();
  try {
    await conversation;
  } finally {
    loading -= 1;
    updateSend();
  }
}

export function startComposer() {
  news.addEventListener("place", () => {
    [...parcels].forEach(dropParcel); // they lie in the other place
    whileLoading(openLastConversation());
  });
  onSubmit("composer", sendMessage);
  $("new-conversation").onclick = () => {
    whileLoading(openNewConversation());
    $("text").focus();
  };
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
}
