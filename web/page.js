// The built-in page: a member signs in, talks to an agent, sends files and gets files back, keeps projects, and
// searches in a folder attached to one.
//
// This file signs in and out, chooses the agent, and lays out the parts; each part is a module of its own, and they
// hear of each other through `news` (state.js).

import { startComposer } from "./composer.js";
import { leaveConversation } from "./conversation.js";
import { $, el, onSubmit, tell } from "./dom.js";
import { startFiles } from "./files.js";
import { startFolder } from "./folder.js";
import { openAgent, startProjects } from "./projects.js";
import { startSearch } from "./search.js";
import { reporting, request, requestJson } from "./service.js";
import { news, place, remember, remembered, rememberMember } from "./state.js";

function showSignIn(problem = "") {
  leaveConversation();
  for (const dialog of document.querySelectorAll("dialog[open]")) dialog.close();
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
    const { member } = await requestJson("POST", "/v1/sign-in", { headers: { Authorization: `Bearer ${token}` } });
    rememberMember(member);
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
  $("agent").value = agent;
  remember("agent", agent);
  await openAgent(agent);
}

function showApp() {
  $("sign-in").hidden = true;
  $("app").hidden = false;
}

/** Show the page if the browser is signed in. Throws Refused if it is not. */
async function start() {
  const { data } = await requestJson("GET", "/v1/models");
  const agents = data.map((model) => model.id);
  if (agents.length === 0) {
    showApp();
    tell($("composer-problem"), "You may use no agent yet. Ask your operator.");
    return;
  }
  $("agent").replaceChildren(...agents.map((agent) => el("option", { value: agent, textContent: agent })));
  $("agent-choice").hidden = agents.length === 1;
  const last = remembered("agent");
  await chooseAgent(agents.includes(last) ? last : agents[0]);
}

/** Where there is no room for all parts, show this one: `place`, `chat` or `index`. */
function show(view) {
  $("app").dataset.view = view;
  for (const choice of $("views").children) choice.ariaCurrent = String(choice.dataset.view === view);
}

function openPlace() {
  showApp();
  $("app").classList.toggle("in-project", place.project !== null);
  $("view-index").hidden = place.project === null;
  show("chat");
  $("text").focus();
}

startComposer();
startFiles();
startProjects();
startSearch();
startFolder();
news.addEventListener("place", openPlace);
news.addEventListener("signed-out", () => {
  if (!$("app").hidden) showSignIn("You are no longer signed in.");
});
onSubmit("sign-in-form", signIn);
$("sign-out").onclick = signOut;
$("agent").onchange = (event) => chooseAgent(event.target.value);
$("new-conversation").addEventListener("click", () => show("chat"));
for (const choice of $("views").children) choice.onclick = () => show(choice.dataset.view);

start().catch((problem) => showSignIn(problem.status === 401 ? "" : problem.message));
