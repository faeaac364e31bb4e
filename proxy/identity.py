"""Who is asking: bearer tokens by digest, the page's cookie, and a front door's trusted header.

A member id is an opaque string: it is never a path and never read from a URL. Credentials that a
browser or a front door adds by itself (the cookie, the trusted header) also stand under the
cross-site rule, which reads `Origin` and `Sec-Fetch-Site` before the body.
"""

from __future__ import annotations

import hashlib
import hmac
import os
import secrets
import time
from collections.abc import Callable
from dataclasses import dataclass
from ipaddress import ip_address
from typing import NamedTuple
from urllib.parse import urlsplit

from aiohttp import web

from proxy.errors import AgentTokenUsed, BadIdentity, CrossSite, TooManySignIns, Unauthenticated
from proxy.limits import RateLimiter
from proxy.lines import is_one_line
from proxy.settings import AuthSettings, Settings, TokenSettings

COOKIE = "isthmus_sign_in"
COOKIE_SECONDS = 30 * 24 * 3600
SECRET_HEADER = "X-Isthmus-Secret"  # noqa: S105  # a header's name
FAILED_SIGN_INS_PER_MINUTE = 20
MAX_MEMBER_ID = 256


@dataclass(frozen=True, slots=True)
class Member:
    """A signed-in person. `agents` None means every configured agent."""

    id: str
    agents: frozenset[str] | None = None
    local: bool = False
    operator: bool = False

    def may_use(self, agent: str) -> bool:
        return self.agents is None or agent in self.agents


class Identified(NamedTuple):
    """A request's member, and whether the browser or the front door added the credential by itself."""

    member: Member
    ambient: bool


def token_digest(token: str) -> str:
    """The hex SHA-256 of a bearer token: the only form in which the configuration holds one."""
    return hashlib.sha256(token.encode("utf-8", "surrogateescape")).hexdigest()


class CookieSigner:
    """The page's cookie: the token's digest and an expiry, signed, so that removing the token ends it."""

    def __init__(self, key: bytes) -> None:
        self._key = key

    def issue(self, digest: str, now: float) -> str:
        expiry = int(now) + COOKIE_SECONDS
        return f"{digest}.{expiry}.{self._sign(digest, expiry)}"

    def digest_of(self, value: str, now: float) -> str | None:
        """The token digest that a cookie stands for; None if it is forged, malformed or over."""
        digest, _, rest = value.partition(".")
        expiry, _, signature = rest.partition(".")
        if not (expiry.isascii() and expiry.isdigit() and len(expiry) <= 12):
            return None
        good = hmac.compare_digest(signature.encode(), self._sign(digest, int(expiry)).encode())
        return digest if good and int(expiry) > now else None

    def _sign(self, digest: str, expiry: int) -> str:
        return hmac.new(self._key, f"cookie:{digest}:{expiry}".encode(), hashlib.sha256).hexdigest()


class Authenticator:
    """Turns a request's credential into a member, in the order bearer, cookie, trusted header."""

    def __init__(self, settings: Settings, key: bytes, wall_clock: Callable[[], float] = time.time) -> None:
        self._auth: AuthSettings = settings.auth
        self._tokens: dict[str, TokenSettings] = {token.sha256: token for token in settings.auth.tokens}
        self._cookies = CookieSigner(key)
        self._failures = RateLimiter()
        self._key = key
        self._clock = wall_clock
        header = settings.auth.trusted_header
        self._networks = header.networks()
        self._secret = os.environ[header.secret_env] if header.secret_env else None
        self._origins = {
            *settings.server.cors_origins,
            *([_origin(settings.server.public_url)] if settings.server.public_url else []),
        }

    def renewed(self, settings: Settings) -> Authenticator:
        """The same with other settings: cookies that were issued still count. Raises KeyError for a missing secret."""
        return Authenticator(settings, self._key, self._clock)

    def identify(self, request: web.Request) -> Identified:
        """The member behind a request.

        Raises Unauthenticated, AgentTokenUsed, BadIdentity, TooManySignIns, CrossSite.
        """
        found = self._bearer(request) or self._cookie(request) or self._trusted(request)
        if found is None:
            raise Unauthenticated
        if found.ambient:
            self.check_same_site(request)
        return found

    def bearer_digest(self, request: web.Request) -> str | None:
        """The digest of the request's bearer token, None without one. Raises Unauthenticated for another scheme."""
        value = request.headers.get("Authorization")
        if value is None:
            return None
        scheme, _, token = value.partition(" ")
        if scheme.lower() != "bearer" or not token.strip():
            raise Unauthenticated
        return token_digest(token.strip())

    def sign_in_cookie(self, digest: str) -> str:
        return self._cookies.issue(digest, self._clock())

    def check_same_site(self, request: web.Request) -> None:
        """Refuse a request that another site's page made with our member's ambient credential."""
        origin = request.headers.get("Origin")
        if origin is not None:
            if origin not in self._origins and origin != f"{request.scheme}://{request.host}":
                raise CrossSite
            return
        site = request.headers.get("Sec-Fetch-Site")
        direct = request.method in {"GET", "HEAD"} and site == "none"
        if site is not None and site != "same-origin" and not direct:
            raise CrossSite

    def _bearer(self, request: web.Request) -> Identified | None:
        digest = self.bearer_digest(request)
        if digest is None:
            return None
        address = request.remote or "unix"
        now = self._clock()
        if wait := self._failures.full(address, "sign_in", FAILED_SIGN_INS_PER_MINUTE, now):
            raise TooManySignIns(wait)
        token = self._token(digest)
        if token is None:
            self._failures.take(address, "sign_in", FAILED_SIGN_INS_PER_MINUTE, now)
            raise Unauthenticated
        return Identified(_member(token), ambient=False)

    def _cookie(self, request: web.Request) -> Identified | None:
        value = request.cookies.get(COOKIE)
        digest = self._cookies.digest_of(value, self._clock()) if value else None
        token = self._token(digest) if digest else None
        return Identified(_member(token), ambient=True) if token else None

    def _token(self, digest: str) -> TokenSettings | None:
        # Every entry is compared, in constant time each: the time tells nothing about the configured digests.
        found = None
        for known, token in self._tokens.items():
            if hmac.compare_digest(known, digest):
                found = token
        return found

    def _trusted(self, request: web.Request) -> Identified | None:
        settings = self._auth.trusted_header
        if not settings.header or not self._from_front_door(request):
            return None
        values = request.headers.getall(settings.header, [])
        if not values:
            return None
        member = values[0].encode("utf-8", "surrogateescape").decode("utf-8", "replace")
        if len(values) > 1:
            raise BadIdentity("it came more than once")
        if (
            not member
            or len(member.encode()) > MAX_MEMBER_ID
            or not is_one_line(member)
            or "\ufffd" in member
        ):
            raise BadIdentity("it is empty, too long, or has control characters")
        return Identified(Member(member), ambient=True)

    def _from_front_door(self, request: web.Request) -> bool:
        # The socket's own peer counts, never X-Forwarded-For.
        peer = request.transport.get_extra_info("peername") if request.transport else None
        if isinstance(peer, tuple):
            near = any(ip_address(peer[0].partition("%")[0]) in network for network in self._networks)
        else:
            near = "unix" in self._auth.trusted_header.sources
        if not near or self._secret is None:
            return near
        shown = request.headers.get(SECRET_HEADER, "")
        return hmac.compare_digest(shown.encode("utf-8", "surrogateescape"), self._secret.encode())


def _member(token: TokenSettings) -> Member:
    if token.agent is not None:
        raise AgentTokenUsed
    agents = None if token.agents is None else frozenset(token.agents)
    return Member(token.member, agents, token.local, token.operator)


def _origin(url: str) -> str:
    parts = urlsplit(url)
    return f"{parts.scheme}://{parts.netloc}"


def new_token() -> str:
    """A fresh bearer token: 256 random bits, URL-safe."""
    return secrets.token_urlsafe(32)
