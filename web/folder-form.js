// The form of a folder that is attached. The service decides what is indexed and why not; what its limits rule out by
// path alone is sent by name without its bytes, so that the report tells of it and nothing is carried for it.

const GITIGNORE = ".gitignore";

/** In which order parts are sent: what says what to leave out, then what may be indexed, then the rest by name. */
const RANK = { rules: 0, content: 1, name: 2 };

const extensionOf = (name) => (name.lastIndexOf(".") > 0 ? name.slice(name.lastIndexOf(".") + 1).toLowerCase() : null);

/** What is sent of one file, told by its path inside the folder. */
function rankOf(segments, limits) {
  const directories = segments.slice(0, -1);
  const name = segments.at(-1);
  if (directories.some((directory) => limits.ignored_directories.includes(directory))) return RANK.name;
  if (name === GITIGNORE) return RANK.rules;
  if (limits.ignored_names.includes(name)) return RANK.name;
  const extension = extensionOf(name);
  const plain = extension === null;
  const known = plain ? limits.extensionless.includes(name.toLowerCase()) : limits.extensions.includes(extension);
  return known ? RANK.content : RANK.name;
}

/**
 * The form of the files of one `<input webkitdirectory>`, with the bytes it carries and the folder's name.
 * Of a file that is too large in any case, one byte more than is allowed is sent: enough to be seen as that.
 */
export function folderForm(files, limits) {
  const folderName = files[0].webkitRelativePath.split("/")[0];
  const parts = files.map((file) => {
    const rank = rankOf(file.webkitRelativePath.split("/").slice(1), limits);
    const content = rank === RANK.name ? new Blob() : file.slice(0, limits.max_document_bytes + 1);
    return { path: file.webkitRelativePath, rank, content };
  });
  parts.sort((one, other) => one.rank - other.rank);
  const form = new FormData();
  form.append("folder_name", folderName);
  // The form has a most of parts, too. A folder of dependencies passes it; of those the last are not even named.
  const sent = parts.slice(0, limits.max_parts - 1);
  for (const { path, content } of sent) form.append("file", content, path);
  return { form, folderName, bytes: sent.reduce((sum, { content }) => sum + content.size, 0) };
}
