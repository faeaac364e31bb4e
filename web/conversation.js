// The open conversation: its past, and the next turn. Leaving it never stops its turn.

import { Answer, showPastAnswer, showQuestion } from "./answer.js";
import { $ } from "./dom.js";
import { Refused, reporting, request, requestJson } from "./service.js";
import { here, place, remember, remembered, tellNews } from "./state.js";
import { Cut, chunksOf } from "./stream.js";

const HISTORY_LIMIT = 500; // the most that one request of history gives
const MESSAGES_SENT = 200; // agents without a memory of their own are sent the latest of the conversation
const LOST = { code: "connection_lost", message: "The connection was lost. The agent goes on: reload to see its answer." };

const open = {
  session: "",
  visit: new AbortController(), // ends what is being read when another conversation is opened
  said: [], // {role, content}
};

/** 128 random bits as hex. crypto.randomUUID would need https; this does not. */
function randomId() {
  const bytes = crypto.getRandomValues(new Uint8Array(16));
  return Array.from(bytes, (byte) => byte.toString(16).padStart(2, "0")).join("");
}

const sessionKey = () => `session.${place.agent}.${place.project?.id ?? "main"}`;

/** Send one message of the member and show its answer; true if a turn began. */
export async function ask(content) {
  const { session, said, visit } = open;
  const question = { role: "user", content };
  const messages = [...said.slice(-MESSAGES_SENT), question];
  const { agent, project } = here();
  const json = { model: agent, project, messages, stream: true, session_id: session };
  showQuestion(content);
  const answer = new Answer();
  let began = false;
  try {
    const response = await request("POST", "/v1/chat/completions", { json, signal: visit.signal });
    began = true;
    said.push(question);
    for await (const chunk of chunksOf(response)) answer.take(chunk);
    said.push({ role: "assistant", content: answer.text.data });
  } catch (problem) {
    if (visit.signal.aborted) return true;
    if (!(problem instanceof Cut || problem instanceof Refused)) throw problem;
    answer.fail(problem instanceof Cut ? LOST : problem);
  } finally {
    answer.end();
  }
  tellNews("files");
  return began;
}

/** Leave the open conversation and show the last one of the open place. */
export const openLastConversation = () => openConversation(remembered(sessionKey()) ?? randomId());

export const openNewConversation = () => openConversation(randomId());

export const leaveConversation = () => open.visit.abort();

async function openConversation(session) {
  leaveConversation();
  Object.assign(open, { session, visit: new AbortController(), said: [] });
  const { said, visit } = open;
  remember(sessionKey(), session);
  $("messages").replaceChildren();
  await reporting($("composer-problem"), () => showPast(session, said, visit.signal));
}

async function showPast(session, said, signal) {
  for (const message of await pastMessages(session, signal)) {
    if (message.role === "user") showQuestion(message.content);
    else showPastAnswer(message);
    said.push({ role: message.role, content: message.content });
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
