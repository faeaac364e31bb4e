// The switcher: the main workspace and the member's projects with the chosen agent; making, changing, deleting them.

import { confirmed } from "./confirm.js";
import { $, el, onSubmit } from "./dom.js";
import { reporting, request, requestJson } from "./service.js";
import { place, placeName, projectAddress, remember, remembered, tellNews } from "./state.js";

let projects = []; // of the open agent, oldest first
let edited = null; // the project in the dialog, or null for a new one

const lastKey = (agent) => `project.${agent}`;

/** Choose an agent, and open what was open last with it. Until its projects are known the old place stays open. */
export async function openAgent(agent) {
  let found = [];
  await reporting($("projects-note"), async () => {
    const answer = await requestJson("GET", "/v1/projects");
    found = answer.projects.filter((project) => project.agent === agent);
  });
  projects = found;
  const last = remembered(lastKey(agent));
  openPlace(agent, projects.find((project) => project.id === last) ?? null);
}

function openPlace(agent, project) {
  Object.assign(place, { agent, project });
  remember(lastKey(agent), project?.id ?? "");
  showProjects();
  tellNews("place");
}

function showProjects() {
  $("projects").replaceChildren(placeItem(null, "Main workspace"), ...projects.map((p) => placeItem(p, p.name)));
  $("projects-hint").hidden = projects.length > 0;
  $("place-name").textContent = placeName();
}

function placeItem(project, name) {
  const open = project?.id === place.project?.id;
  const choice = el("button", { type: "button", className: "place", textContent: name, title: name });
  choice.onclick = () => openPlace(place.agent, project);
  if (!open) return el("li", {}, choice);
  choice.ariaCurrent = "true";
  if (project === null) return el("li", {}, choice);
  const edit = el("button", { type: "button", textContent: "Edit", ariaLabel: `Edit ${name}` });
  edit.onclick = () => showDialog(project);
  return el("li", {}, choice, edit);
}

function showDialog(project) {
  edited = project;
  $("project-title").textContent = project ? "Edit project" : "New project";
  $("project-save").textContent = project ? "Save" : "Create";
  $("project-name").value = project?.name ?? "";
  $("project-instructions").value = project?.instructions ?? "";
  $("project-delete").hidden = project === null;
  $("project-problem").hidden = true;
  $("project-dialog").showModal();
}

function saveProject() {
  const json = { name: $("project-name").value, instructions: $("project-instructions").value };
  return reporting($("project-problem"), edited ? () => changeProject(json) : () => createProject(json));
}

async function createProject(json) {
  const { project } = await requestJson("POST", "/v1/projects", { json: { ...json, agent: place.agent } });
  projects.push(project);
  $("project-dialog").close();
  openPlace(project.agent, project);
}

async function changeProject(json) {
  const { project } = await requestJson("PATCH", projectAddress(), { json });
  projects = projects.map((known) => (known.id === project.id ? project : known));
  place.project = project;
  $("project-dialog").close();
  showProjects();
}

async function deleteProject() {
  const { id, name } = edited;
  const question = `Delete “${name}”? Its files, its conversations and what is indexed go with it, for good.`;
  if (!(await confirmed(question, "Delete for good"))) return;
  await reporting($("project-problem"), async () => {
    await request("DELETE", projectAddress());
    projects = projects.filter((project) => project.id !== id);
    $("project-dialog").close();
    openPlace(place.agent, null);
  });
}

export function startProjects() {
  onSubmit("project-form", saveProject);
  $("new-project").onclick = () => showDialog(null);
  $("project-delete").onclick = deleteProject;
  $("project-cancel").onclick = () => $("project-dialog").close();
}
