// Where the member is: which agent, which project. What is kept in the browser is kept for each member apart.

/**
 * What the parts of the page tell each other:
 * `place`: another agent or project is open; `files`: the public directory changed; `signed-out`: the service no
 * longer knows this browser.
 */
export const news = new EventTarget();

export const tellNews = (name) => news.dispatchEvent(new Event(name));

/** The place that is open. `project` is a project of the service, or null in the main workspace. */
export const place = { agent: "", project: null };

/** The fields that name the place in a request. */
export const here = () => ({ agent: place.agent, project: place.project?.id ?? null });

/** The address of the open project, or of a thing in it (`rag/search`). */
export const projectAddress = (...rest) => ["/v1/projects", encodeURIComponent(place.project.id), ...rest].join("/");

export const placeName = () => place.project?.name ?? "Main workspace";

const MEMBER = "isthmus.member";

const keyOf = (name) => `isthmus.${localStorage.getItem(MEMBER) ?? ""}.${name}`;

export const remember = (name, value) => localStorage.setItem(keyOf(name), value);

export const remembered = (name) => localStorage.getItem(keyOf(name));

export const rememberMember = (member) => localStorage.setItem(MEMBER, member);
