// One answer of the agent, and one message of the member, as they stand in the conversation.

import { $, clip, el, sizeInWords } from "./dom.js";
import { fileAddress } from "./files.js";
import { place, tellNews } from "./state.js";
import { splitAttachments, textWithLinks } from "./text.js";

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

const reasonInWords = (reason) =>
  reason.startsWith("http_") ? `the agent answered with status ${reason.slice(5)}` : (REASONS[reason] ?? reason);

function deliveryItem({ state: outcome, name, path, size, reason }) {
  if (outcome !== "stored") {
    const text = `⚠ ${name} could not be delivered: ${reasonInWords(reason)}`;
    return el("li", { className: "failed", textContent: text });
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

export function showQuestion(content) {
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
export class Answer {
  constructor() {
    this.activity = el("p", { className: "activity", textContent: "Waiting for the agent" });
    this.stepList = el("ol");
    this.stepCount = el("summary");
    this.steps = el("details", { className: "steps", hidden: true }, this.stepCount, this.stepList);
    this.body = el("div", { className: "body", dir: "auto" });
    this.deliveries = el("ul", { className: "deliveries" });
    this.notes = el("div");
    this.element = el("article", { className: "answer", ariaBusy: "true" });
    this.element.append(el("h3", { className: "unseen", textContent: place.agent }), this.steps, this.body);
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
    tellNews("files");
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

export function showPastAnswer({ content, deliveries = [], error }) {
  const answer = new Answer();
  answer.write(content);
  answer.deliveries.append(...deliveries.map(deliveryItem));
  if (error) answer.fail(error);
  answer.end();
}
