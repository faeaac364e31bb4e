"""The configured agents: where one is for a member, how a turn reaches it, how its files are fetched.

Nothing but the member's label and the project's id is ever put into an agent's URL, and after
filling in, scheme, port and every fixed part of the template must still stand.
"""

from __future__ import annotations

import asyncio
import hashlib
import re
import socket
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from urllib.parse import urlsplit, urlunsplit

import aiohttp
from aiohttp.abc import AbstractResolver, ResolveResult

from proxy.errors import AgentRequired, UnknownAgent
from proxy.identity import Member
from proxy.settings import AgentSettings, Settings
from workspace.settings import AgentTree

MAIN = "main"
MAX_RECORD = 8 * 1024 * 1024
PING_SECONDS = 30
RETRY_SECONDS = 0.2


class AgentUnreachable(Exception):
    """The harness could not be reached, or refused the connection; the text is for people."""


def url_label(value: str) -> str:
    """A member id as one DNS label or path segment of an agent's URL."""
    if re.fullmatch(r"[a-z0-9]([a-z0-9-]{0,30}[a-z0-9])?", value) and not value.startswith("m-"):
        return value
    return "m-" + hashlib.sha256(value.encode("utf-8", "surrogatepass")).hexdigest()[:32]


def fill_url(template: str, member: str, project: str | None) -> str:
    """The agent's address for a member and project. Raises ValueError if a fixed part would not stand."""
    label, place = url_label(member), url_label(project or MAIN)
    url = template.replace("{member}", label).replace("{project}", place)
    pattern = re.escape(template).replace(r"\{member\}", "[a-z0-9-]+").replace(r"\{project\}", "[a-z0-9-]+")
    if not re.fullmatch(pattern, url):
        raise ValueError("the filled-in url left its template")
    return url


class Agent:
    """One configured agent, with its secret read and its tree known."""

    def __init__(self, settings: AgentSettings, tree: AgentTree) -> None:
        self.settings = settings
        self.key = settings.key
        self.tree = tree
        self._secret = settings.secret()

    def authorization(self) -> dict[str, str]:
        return {"Authorization": f"Bearer {self._secret}"} if self._secret else {}

    def socket_url(self, member: str, project: str | None, session_id: str) -> str:
        """The pico WebSocket's address under one harness session id (hex digits and dots only)."""
        return f"{fill_url(self.settings.url, member, project)}?session_id={session_id}"

    def media_url(self, member: str, project: str | None, path: str) -> str:
        """The address of a media path that the pico reader has already checked: the agent's own origin."""
        parts = urlsplit(fill_url(self.settings.url, member, project))
        scheme = {"ws": "http", "wss": "https"}.get(parts.scheme, parts.scheme)
        return urlunsplit((scheme, parts.netloc, path, "", ""))


class Agents:
    """Every configured agent, in the configuration's order."""

    def __init__(self, settings: Settings) -> None:
        self._agents = {
            entry.key: Agent(
                entry,
                AgentTree(
                    root=settings.agent_workspaces(entry),
                    uid=entry.uid,
                    gid=entry.gid,
                    file_mode=int(settings.media.file_mode, 8),
                    dir_mode=int(settings.media.dir_mode, 8),
                    min_free=settings.media.min_free_ratio,
                ),
            )
            for entry in settings.agents
        }

    def __iter__(self) -> Iterator[Agent]:
        return iter(self._agents.values())

    def of(self, member: Member) -> list[Agent]:
        return [agent for agent in self if member.may_use(agent.key)]

    def choose(self, member: Member, key: str | None) -> Agent:
        """The agent of this key, or the member's only one. Raises UnknownAgent, AgentRequired."""
        if key is not None:
            agent = self._agents.get(key)
            if agent is None or not member.may_use(key):
                raise UnknownAgent(key[:100])
            return agent
        mine = self.of(member)
        if len(mine) != 1:
            raise AgentRequired(tuple(agent.key for agent in mine))
        return mine[0]


class Harnesses:
    """The HTTP client towards harnesses: no cookies, no proxy of the environment, no redirect."""

    def __init__(self, connect_timeout: float) -> None:
        self._connect_timeout = connect_timeout
        self._session: aiohttp.ClientSession | None = None

    async def __aenter__(self) -> Harnesses:
        # Turns are long and many: the bound on them is chat.max_turns, not the connector's pool.
        self._session = aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(limit=0, ttl_dns_cache=10), cookie_jar=aiohttp.DummyCookieJar()
        )
        return self

    async def __aexit__(self, *_exc: object) -> None:
        if self._session is not None:
            await self._session.close()

    async def open_socket(self, url: str, headers: dict[str, str]) -> aiohttp.ClientWebSocketResponse:
        """A harness's WebSocket. A refused connection is tried again while `connect_timeout` lasts (an
        agent may be starting); one bound covers everything up to the upgrade. Raises AgentUnreachable."""
        assert self._session is not None, "entered"  # noqa: S101
        try:
            async with asyncio.timeout(self._connect_timeout):
                while True:
                    try:
                        return await self._session.ws_connect(
                            url, headers=headers, max_msg_size=MAX_RECORD, heartbeat=PING_SECONDS, compress=0
                        )
                    except aiohttp.ClientConnectorError:
                        await asyncio.sleep(RETRY_SECONDS)
        except TimeoutError as error:
            raise AgentUnreachable(f"it did not answer within {self._connect_timeout:g} s") from error
        except aiohttp.WSServerHandshakeError as error:
            raise AgentUnreachable(f"it refused the connection with status {error.status}") from error
        except (aiohttp.ClientError, OSError, ValueError) as error:
            raise AgentUnreachable("it does not speak the protocol at its address") from error

    @asynccontextmanager
    async def fetch(
        self, url: str, headers: dict[str, str], address: str, *, total: float, idle: float
    ) -> AsyncIterator[aiohttp.ClientResponse]:
        """GET a harness's file from the very address that the turn's socket has, redirects not followed."""
        connector = aiohttp.TCPConnector(
            resolver=_PinnedResolver(address), use_dns_cache=False, force_close=True
        )
        async with (
            aiohttp.ClientSession(
                connector=connector,
                cookie_jar=aiohttp.DummyCookieJar(),
                auto_decompress=False,
                timeout=aiohttp.ClientTimeout(
                    total=total, sock_connect=self._connect_timeout, sock_read=idle
                ),
            ) as session,
            session.get(
                url, headers={**headers, "Accept-Encoding": "identity"}, allow_redirects=False
            ) as response,
        ):
            yield response


class _PinnedResolver(AbstractResolver):
    """Answers every name with one known address: a name that changes its address leads nowhere else."""

    def __init__(self, address: str) -> None:
        self._address = address

    async def resolve(
        self,
        host: str,
        port: int = 0,
        family: socket.AddressFamily = socket.AF_INET,  # noqa: ARG002  # the signature is the library's
    ) -> list[ResolveResult]:
        found = socket.AF_INET6 if ":" in self._address else socket.AF_INET
        return [
            ResolveResult(
                hostname=host,
                host=self._address,
                port=port,
                family=found,
                proto=0,
                flags=socket.AI_NUMERICHOST,
            )
        ]

    async def close(self) -> None:
        return None
