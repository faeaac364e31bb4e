// Requests to the service and its refusals.

import { tell } from "./dom.js";
import { news } from "./state.js";

/** The service said no (its error body), or could not be asked (status 0). */
export class Refused extends Error {
  constructor(status, { code, message }) {
    super(message);
    this.status = status;
    this.code = code;
  }
}

const UNREACHABLE = { code: "unreachable", message: "The service cannot be reached. Check the connection and try again." };
const CLIENT = { "X-Isthmus-Client": "page" };

/** The error body of an answer, or a stand-in when something between us and the service answered. */
function refusal(status, text) {
  if (status === 401) news.dispatchEvent(new Event("signed-out"));
  try {
    const { code, message } = JSON.parse(text).error;
    return new Refused(status, { code, message });
  } catch {
    return new Refused(status, { code: `http_${status}`, message: `The service answered with status ${status}.` });
  }
}

/** A path with the part of a query that has values. */
export function address(path, query = {}) {
  const given = Object.entries(query).filter(([, value]) => value !== null && value !== undefined);
  return given.length ? `${path}?${new URLSearchParams(given)}` : path;
}

/** One request; the response if it succeeded. Throws Refused, or AbortError when `signal` ended it. */
export async function request(method, path, { query, json, headers = {}, signal } = {}) {
  const body = json === undefined ? undefined : JSON.stringify(json);
  const type = body === undefined ? {} : { "Content-Type": "application/json" };
  let response;
  try {
    const all = { ...CLIENT, ...type, ...headers };
    response = await fetch(address(path, query), { method, body, headers: all, signal });
  } catch (problem) {
    if (problem.name === "AbortError") throw problem;
    throw new Refused(0, UNREACHABLE);
  }
  if (response.ok) return response;
  throw refusal(response.status, await response.text());
}

export async function requestJson(method, path, options) {
  return (await request(method, path, options)).json();
}

/**
 * POST a form and tell how many of its bytes are sent (XMLHttpRequest, as fetch tells none of a request's body).
 * The JSON of the answer; throws Refused, or the reason of `signal`.
 */
export function sendForm(path, form, { signal, onProgress }) {
  return new Promise((resolve, reject) => {
    const transfer = new XMLHttpRequest();
    transfer.open("POST", path);
    for (const [name, value] of Object.entries(CLIENT)) transfer.setRequestHeader(name, value);
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

/** Run an action; what the service refuses is shown in `line`, and what was given up is no news. */
export async function reporting(line, action) {
  try {
    tell(line, "");
    await action();
  } catch (problem) {
    if (problem.name === "AbortError") return;
    if (!(problem instanceof Refused)) throw problem;
    tell(line, problem.message);
  }
}
