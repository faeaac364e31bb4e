"""The parts of the service, started in order on one exit stack and ended in the reverse order."""

from __future__ import annotations

import asyncio
import os
import secrets
from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Any

import structlog
from aiohttp import web

from proxy import keys
from proxy.agents import Agents, Harnesses
from proxy.archives import ArchiveSlots
from proxy.capabilities import report
from proxy.history import History
from proxy.identity import Authenticator
from proxy.large_bodies import LargeBodies
from proxy.live import LiveTurns
from proxy.place import prepare
from proxy.projects import Projects
from proxy.quota import Quota
from proxy.relay import Relay
from proxy.service import Service
from proxy.settings import Settings
from proxy.streams import StreamSlots
from proxy.uploads import Uploads
from rag.embedded import EmbeddedServer
from rag.migrate import migrate
from rag.pool import connection, open_pool, require_capable_server
from rag.search import Searcher
from workspace import landlock
from workspace.confine import confinement
from workspace.legacy import Migrated, Migrations
from workspace.registry import Workspaces

log = structlog.get_logger()


async def running(app: web.Application, settings: Settings) -> AsyncIterator[None]:
    """The application's cleanup context: the service is there between its two halves."""
    async with AsyncExitStack() as stack:
        directory = await asyncio.to_thread(prepare_directories, settings)
        key, service_id = await asyncio.to_thread(_own_keys, directory)
        connect = await _store(stack, settings, directory)
        pool = await stack.enter_async_context(await open_pool(connect))
        if settings.store.url:
            async with connection(pool) as conn:
                await require_capable_server(conn)
        applied = await migrate(pool)
        log.info("store_ready", migrations_applied=len(applied))
        history = await stack.enter_async_context(History(pool, service=service_id))
        workspaces = Workspaces(Migrations(directory / "locks", _log_migrated))
        stack.push_async_callback(workspaces.close)
        harnesses = await stack.enter_async_context(Harnesses(settings.chat.connect_timeout))
        chat = settings.chat
        live = LiveTurns(
            per_member=chat.max_turns_per_member,
            total=chat.max_turns,
            session_queue=chat.session_queue,
            replay_keep=chat.replay_keep,
            replay_total=chat.replay_total,
        )
        projects = Projects(pool)
        relay = Relay(
            chat, settings.deliveries, harnesses=harnesses, live=live, history=history, projects=projects
        )
        stack.push_async_callback(relay.drain, 0)
        uploads = Uploads(
            settings.media,
            settings.server.max_uploads_per_member,
            directory / "spool",
            partial(prepare, projects=projects),
        )
        stack.callback(uploads.close)
        service = Service(
            settings=settings,
            authenticator=Authenticator(settings, key),
            agents=Agents(settings),
            workspaces=workspaces,
            history=history,
            live=live,
            large_bodies=LargeBodies(),
            relay=relay,
            uploads=uploads,
            quota=Quota(settings.media.quota_bytes),
            archives=ArchiveSlots(),
            streams=StreamSlots(settings.server.max_streams_per_member),
            projects=projects,
            searcher=Searcher(pool),
            pool=pool,
        )
        stack.push_async_callback(service.end_questions)
        app[keys.SERVICE] = service
        lacking = await asyncio.to_thread(report, embedded=not settings.store.url)
        log.info(
            "confinement",
            kind=confinement(),
            landlock=landlock.is_available(),
            root=os.geteuid() == 0,
            missing_capabilities=lacking,
        )
        yield


def _log_migrated(migrated: Migrated) -> None:
    say = log.warning if migrated.left else log.info
    say("old_directory_migrated", **asdict(migrated))


async def _store(stack: AsyncExitStack, settings: Settings, directory: Path) -> Mapping[str, Any] | str:
    if settings.store.url:
        return settings.store.url
    server = EmbeddedServer(directory, settings.store.uid, lambda line: log.info("postgres", line=line))
    return await stack.enter_async_context(server)


def prepare_directories(settings: Settings) -> Path:
    """Make the data directory (0755: what is below keeps its own doors) and the agents' folders in it.

    Raises NotADirectoryError for an agent's own `workspaces` that does not exist: it is the operator's to make.
    """
    directory = settings.store.directory
    directory.mkdir(mode=0o755, parents=True, exist_ok=True)
    for agent in settings.agents:
        workspaces = settings.agent_workspaces(agent)
        if not agent.workspaces:
            workspaces.mkdir(mode=0o755, parents=True, exist_ok=True)
        if not workspaces.is_dir():
            raise NotADirectoryError(f"agents[{agent.key}].workspaces: there is no directory {workspaces}")
    return directory


def _own_keys(directory: Path) -> tuple[bytes, str]:
    """The cookie's key, and this installation's id, by which a restart knows which turns were its own."""
    return secret_key(directory, "cookie"), secret_key(directory, "service-id")[:16].hex()


def secret_key(directory: Path, name: str) -> bytes:
    """A random key of 32 bytes that lives below the data directory, made at first use, readable by us only."""
    folder = directory / "keys"
    folder.mkdir(mode=0o700, exist_ok=True)
    path = folder / f"{name}.key"
    try:
        return path.read_bytes()
    except FileNotFoundError:
        return _written_once(path, secrets.token_bytes(32))


def _written_once(path: Path, data: bytes) -> bytes:
    """Put the file there whole or not at all; whoever comes second reads what the first wrote."""
    private = path.with_name(f"{path.name}.{secrets.token_hex(4)}")
    descriptor = os.open(private, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    try:
        os.write(descriptor, data)
        os.fsync(descriptor)
        try:
            os.link(private, path)
        except FileExistsError:
            return path.read_bytes()
        return data
    finally:
        os.close(descriptor)
        private.unlink()
