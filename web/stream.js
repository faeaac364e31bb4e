// The event stream of a turn.

/** The stream ended without its terminal: the connection was lost, the turn was not. */
export class Cut extends Error {}

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
export async function* chunksOf(response) {
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
