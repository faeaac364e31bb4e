// Making and finding elements. What comes from the service reaches the document only as text (textContent or text
// nodes): the policy enforces Trusted Types, so there is no other way.

export const $ = (id) => document.getElementById(id);

/** A new element with properties and children; a child that is null is left out. */
export function el(tag, properties = {}, ...children) {
  const element = Object.assign(document.createElement(tag), properties);
  element.append(...children.filter((child) => child !== null));
  return element;
}

/** Put a text into a line that is hidden while it has none. */
export function tell(element, text) {
  element.textContent = text;
  element.hidden = text === "";
}

export function onSubmit(id, action) {
  $(id).addEventListener("submit", (event) => {
    event.preventDefault();
    action();
  });
}

/** The paper-clip of the composer once more, so that it looks the same without a font that has it. */
export const clip = () => $("attach").querySelector("svg").cloneNode(true);

export function sizeInWords(bytes) {
  if (bytes < 1000) return `${bytes} B`;
  const units = ["kB", "MB", "GB", "TB"];
  const power = Math.min(Math.floor(Math.log10(bytes) / 3), units.length);
  return `${(bytes / 1000 ** power).toFixed(1)} ${units[power - 1]}`;
}

export const counted = (count, word) => `${count.toLocaleString("en")} ${word}${count === 1 ? "" : "s"}`;
