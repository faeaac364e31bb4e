"""Deliveries: an agent's file becomes the member's, published as an upload is, in exactly one visible state.

Two ways lead here. The harness pushes a reference: it is fetched from the harness's own origin, whole
or not at all. The agent writes into `public/attachments/` itself: what is new or changed since the
turn began, and stands still, is announced. Whichever comes first claims the file for its turn.
"""

from __future__ import annotations

import asyncio
import time
from collections import OrderedDict
from collections.abc import Callable
from urllib.parse import unquote, urlsplit

import aiohttp
import structlog

from proxy.agents import Harnesses
from proxy.downloads import disposition_filename
from proxy.place import Place
from proxy.settings import DeliverySettings
from proxy.stream.events import Delivery, MediaRef
from workspace.errors import InvalidName, NoSpace, WorkspaceError
from workspace.handle import Workspace
from workspace.location import project_root
from workspace.names import clean_name, number_name
from workspace.paths import RelPath

log = structlog.get_logger()

ATTACHMENTS = RelPath(("attachments",))
READ_BYTES = 256 * 1024
IDLE_SECONDS = 15
STILL_SECONDS = 0.3
STILL_AT_MOST_SECONDS = 2.0
MAX_CLAIMS = 10_000

Snapshot = dict[str, tuple[int, int, int]]


class Claims:
    """Which files of a workspace have been announced: (path, inode, mtime), the oldest forgotten first."""

    def __init__(self) -> None:
        self._claimed: OrderedDict[tuple[str, str, int, int], None] = OrderedDict()

    def claim(self, workspace: str, path: str, inode: int, mtime_ns: int) -> bool:
        """Whether this turn is the first to announce this state of the file."""
        key = (workspace, path, inode, mtime_ns)
        if key in self._claimed:
            return False
        self._claimed[key] = None
        while len(self._claimed) > MAX_CLAIMS:
            self._claimed.popitem(last=False)
        return True


class TooLarge(Exception):
    """The file is larger than `deliveries.max_bytes`."""


class TurnDeliveries:
    """The deliveries of one turn: fetches beside its frame loop, and what the agent wrote itself."""

    def __init__(
        self, place: Place, harnesses: Harnesses, claims: Claims, settings: DeliverySettings,
        wall_clock: Callable[[], float] = time.time,
    ) -> None:  # fmt: skip
        self._place = place
        self._harnesses = harnesses
        self._claims = claims
        self._settings = settings
        self._clock = wall_clock
        self._names: set[str] = set()
        self._slots = asyncio.Semaphore(settings.parallel)
        self._before: Snapshot = {}

    @property
    def _workspace(self) -> Workspace:
        return self._place.workspace

    @property
    def _claim_key(self) -> str:
        return f"{self._place.agent.key}/{project_root(self._place.location)}"

    async def begin(self) -> None:
        """Remember what lies in `public/attachments/` now: only what comes later is this turn's."""
        self._before = await self._workspace.snapshot()

    async def fetch(self, reference: MediaRef, address: str) -> Delivery:
        """Fetch and publish one pushed file; every failure becomes a visible state, none is raised."""
        raw_name = reference.filename or ""
        try:
            name = self._reserve(raw_name) if raw_name else None
            async with self._slots, asyncio.timeout(self._settings.timeout):
                return await self._fetch(reference, address, name)
        except InvalidName:
            return Delivery("refused", raw_name[:255] or "attachment", reason="bad_name")
        except (TimeoutError, aiohttp.ServerTimeoutError):
            reason = "timeout"
        except TooLarge:
            reason = "too_large"
        except aiohttp.ClientError:
            reason = "cut"
        except NoSpace:
            reason = "no_space"
        except (WorkspaceError, OSError) as error:
            log.warning("delivery_not_stored", error=type(error).__name__)
            reason = "store_failed"
        return Delivery("failed", shown_name(reference), reason=reason)

    async def _fetch(self, reference: MediaRef, address: str, name: str | None) -> Delivery:
        agent, project = self._place.agent, self._place.project_id
        url = agent.media_url(self._place.owner, project, reference.url)
        async with self._harnesses.fetch(
            url, agent.authorization(), address, total=self._settings.timeout, idle=IDLE_SECONDS
        ) as response:
            shown = name or shown_name(reference)
            if 300 <= response.status < 400:
                return Delivery("refused", shown, reason="redirect")
            if response.status != 200:
                return Delivery("failed", shown, reason=f"http_{response.status}")
            if response.headers.get("Content-Encoding", "identity").lower() != "identity":
                return Delivery("failed", shown, reason="cut")
            if (response.content_length or 0) > self._settings.max_bytes:
                raise TooLarge
            return await self._publish(response, name or self._reserve(self._later_name(reference, response)))

    async def _publish(self, response: aiohttp.ClientResponse, name: str) -> Delivery:
        async with self._workspace.receive(ATTACHMENTS, make_folder=True) as incoming:
            async for data in response.content.iter_chunked(READ_BYTES):
                if incoming.size + len(data) > self._settings.max_bytes:
                    raise TooLarge
                await incoming.write(data)
            published = await incoming.publish(name)
        inode, mtime_ns, _ = published.identity
        self._claims.claim(self._claim_key, published.path, inode, mtime_ns)
        return Delivery("stored", published.name, published.path, published.size)

    async def written_by_agent(self) -> list[Delivery]:
        """What the agent wrote into its attachments since `begin`, once it stands still (2 s at most)."""
        found = await self._workspace.snapshot()
        deadline = self._clock() + STILL_AT_MOST_SECONDS
        while (moving := self._moving(found)) and self._clock() < deadline:
            await asyncio.sleep(moving)
            found = await self._workspace.snapshot()
        new = self._new(found)
        self._before = found
        return [
            Delivery("stored", path.rpartition("/")[2], path, size)
            for path, (inode, size, mtime_ns) in sorted(new.items())
            if self._claims.claim(self._claim_key, path, inode, mtime_ns)
        ]

    def _new(self, found: Snapshot) -> Snapshot:
        return {path: state for path, state in found.items() if self._before.get(path) != state}

    def _moving(self, found: Snapshot) -> float:
        """Seconds until every new file has stood still for long enough; 0 when all do."""
        newest = max((mtime_ns for _, _, mtime_ns in self._new(found).values()), default=0) / 1e9
        age = self._clock() - newest
        return 0 if age < 0 or age >= STILL_SECONDS else STILL_SECONDS - age

    def _reserve(self, raw_name: str) -> str:
        """The clean name, numbered if another file of this turn has it. Raises InvalidName."""
        clean = clean_name(raw_name)
        name, number = clean, 1
        while name in self._names:
            number += 1
            name = number_name(clean, number)
        self._names.add(name)
        return name

    @staticmethod
    def _later_name(reference: MediaRef, response: aiohttp.ClientResponse) -> str:
        disposition = disposition_filename(response.headers.get("Content-Disposition", ""))
        return disposition or unquote(urlsplit(reference.url).path.rpartition("/")[2]) or "attachment"


def shown_name(reference: MediaRef) -> str:
    """What a file is called that could not be stored."""
    try:
        return clean_name(reference.filename or "attachment")
    except InvalidName:
        return "attachment"
