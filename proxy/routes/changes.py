"""What a member changes below `public/`: files deleted, folders made and deleted, entries moved (`/v1/media…`)."""

from __future__ import annotations

from collections.abc import Mapping

import structlog
from aiohttp import web

from proxy import keys, scope
from proxy.errors import InvalidRequest, RepeatedField
from proxy.place import Place
from proxy.public_changes import entry_to_change, new_entry, new_folder
from proxy.rights import Action
from proxy.routes.body import json_object, single_values
from proxy.routing import Credential, Route
from workspace.changes import ExtensionLists
from workspace.errors import IsAFolder
from workspace.paths import display, is_reserved, public_path

log = structlog.get_logger()


async def delete_file(request: web.Request) -> web.Response:
    """Delete one file; a folder is refused."""
    fields = Fields(single_values(request))
    raw_path = fields.required("path")
    if not public_path(raw_path).segments:
        raise IsAFolder(display(public_path(raw_path)))
    path = entry_to_change(raw_path)
    place = await fields.place(request)
    await place.workspace.delete_file(path)
    request.app[keys.SERVICE].quota.forget(place)
    _audit("audit_file_deleted", place, path=display(path))
    return web.json_response({"status": "deleted", "path": display(path)})


async def make_folder(request: web.Request) -> web.Response:
    """Make a folder with its parents; one that is there already is as good."""
    fields = await _json_fields(request)
    path = new_folder(fields.required("path"))
    place = await fields.place(request)
    await place.workspace.make_folder(path)
    _audit("audit_folder_made", place, path=display(path))
    return web.json_response({"status": "created", "path": display(path)})


async def delete_folder(request: web.Request) -> web.Response:
    """Delete a folder with all that is in it."""
    fields = await _json_fields(request) if request.body_exists else Fields(single_values(request))
    path = entry_to_change(fields.required("path"))
    place = await fields.place(request)
    emptied = await place.workspace.delete_folder(path)
    request.app[keys.SERVICE].quota.forget(place)
    _audit("audit_folder_deleted", place, path=display(path), files=emptied.files)
    told: dict[str, object] = {"status": "deleted", "path": display(path), "removedFiles": emptied.files}
    return web.json_response(told if emptied.in_time else {**told, "truncated": True})


async def move(request: web.Request) -> web.Response:
    """Give a file or folder another name or folder; nothing is ever replaced."""
    fields = await _json_fields(request)
    source, target = entry_to_change(fields.required("path")), new_entry(fields.required("to"))
    place = await fields.place(request)
    media = request.app[keys.SERVICE].settings.media
    held_to = None if is_reserved(source) else ExtensionLists(media.extensions, media.extensionless)
    await place.workspace.move(source, target, held_to)
    _audit("audit_moved", place, path=display(source), to=display(target))
    return web.json_response({"status": "moved", "path": display(source), "to": display(target)})


class Fields:
    """The named texts of a request, from its query or its JSON object, each given once."""

    def __init__(self, values: Mapping[str, object]) -> None:
        self._values = values

    def optional(self, name: str) -> str | None:
        """None when it is absent or empty. Raises InvalidRequest."""
        value = self._values.get(name)
        if value is not None and not isinstance(value, str):
            raise InvalidRequest(name, "send a string")
        return value or None

    def required(self, name: str) -> str:
        """Raises InvalidRequest when it is absent or empty."""
        value = self.optional(name)
        if value is None:
            raise InvalidRequest(name, "it is missing")
        return value

    async def place(self, request: web.Request) -> Place:
        """Where the change is made. Raises what `scope.resolve` raises."""
        return await scope.resolve(
            request, self.optional("agent"), self.optional("project"), Action.CHANGE_FILES
        )


async def _json_fields(request: web.Request) -> Fields:
    """Of the JSON object; what stands in the query counts too, so that no `project` there is passed over."""
    query, body = single_values(request), await json_object(request)
    if both := query.keys() & body.keys():
        raise RepeatedField(min(both)[:100])
    return Fields({**query, **body})


def _audit(event: str, place: Place, **facts: object) -> None:
    log.info(event, agent=place.agent.key, project=place.project_id, **facts)


ROUTES = [
    Route("DELETE", "/v1/media", delete_file, Credential.MEMBER, "changes"),
    Route("POST", "/v1/media/folder", make_folder, Credential.MEMBER, "changes"),
    Route("DELETE", "/v1/media/folder", delete_folder, Credential.MEMBER, "changes"),
    Route("POST", "/v1/media/move", move, Credential.MEMBER, "changes"),
]
