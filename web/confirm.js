// One question before something is gone for good.

import { $ } from "./dom.js";

/** Ask; true if the member chose `action`, false for every other way out. */
export function confirmed(question, action) {
  const dialog = $("confirm");
  $("confirm-question").textContent = question;
  $("confirm-yes").textContent = action;
  $("confirm-yes").onclick = () => dialog.close("yes");
  $("confirm-no").onclick = () => dialog.close();
  dialog.returnValue = "";
  dialog.showModal();
  return new Promise((resolve) => {
    dialog.addEventListener("close", () => resolve(dialog.returnValue === "yes"), { once: true });
  });
}
