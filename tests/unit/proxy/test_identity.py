"""Who a request is from, decided on real requests' headers and peers."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from aiohttp import web
from aiohttp.test_utils import make_mocked_request

from proxy.errors import AgentTokenUsed, BadIdentity, CrossSite, TooManySignIns, Unauthenticated
from proxy.identity import COOKIE, Authenticator, CookieSigner, token_digest
from proxy.settings import load_settings

TOKEN = "t" * 40
NOW = 1_800_000_000.0


def authenticator(**auth: Any) -> Authenticator:
    tokens = [
        {"member": "ana", "sha256": token_digest(TOKEN), "agents": ["demo"]},
        {"member": "bo", "agent": "demo", "sha256": token_digest("a" * 40)},
    ]
    settings = load_settings(
        None,
        agents=[{"key": "demo"}],
        auth={"tokens": tokens, **auth},
        server={"public_url": "https://chat.example", "cors_origins": ["https://friend.example"]},
    )
    return Authenticator(settings, b"k" * 32, lambda: NOW)


def request(headers: dict[str, str], peer: Any = ("10.0.0.2", 4711), method: str = "GET") -> web.Request:
    transport = SimpleNamespace(
        get_extra_info=lambda name, default=None: peer if name == "peername" else default
    )
    return make_mocked_request(method, "/", {"Host": "chat.example", **headers}, transport=transport)  # type: ignore[arg-type]


def test_a_known_bearer_is_its_member_and_a_foreign_one_is_nobody() -> None:
    door = authenticator()
    found = door.identify(request({"Authorization": f"Bearer {TOKEN}"}))
    assert (found.member.id, found.member.agents, found.ambient) == ("ana", frozenset({"demo"}), False)
    for headers in ({"Authorization": "Bearer x"}, {"Authorization": f"Basic {TOKEN}"}, {}):
        with pytest.raises(Unauthenticated):
            door.identify(request(headers))


def test_an_agents_token_does_not_open_a_members_route() -> None:
    with pytest.raises(AgentTokenUsed):
        authenticator().identify(request({"Authorization": f"Bearer {'a' * 40}"}))


def test_twenty_failed_sign_ins_from_one_address_close_it_for_a_while() -> None:
    door = authenticator()
    for _ in range(20):
        with pytest.raises(Unauthenticated):
            door.identify(request({"Authorization": "Bearer guess"}))
    with pytest.raises(TooManySignIns):
        door.identify(request({"Authorization": "Bearer guess"}))
    other = door.identify(request({"Authorization": f"Bearer {TOKEN}"}, peer=("10.0.0.3", 1)))
    assert other.member.id == "ana"


def test_a_cookie_counts_until_it_expires_or_its_token_is_removed() -> None:
    door = authenticator()
    cookie = door.sign_in_cookie(token_digest(TOKEN))
    found = door.identify(request({"Cookie": f"{COOKIE}={cookie}"}))
    assert (found.member.id, found.ambient) == ("ana", True)
    signer = CookieSigner(b"k" * 32)
    for bad in (
        signer.issue(token_digest(TOKEN), NOW - 31 * 24 * 3600),
        signer.issue(token_digest("removed"), NOW),
        CookieSigner(b"z" * 32).issue(token_digest(TOKEN), NOW),
        cookie[:-1] + ("0" if cookie[-1] != "0" else "1"),
        "a.b.c",
        "..",
        token_digest(TOKEN),
    ):
        with pytest.raises(Unauthenticated):
            door.identify(request({"Cookie": f"{COOKIE}={bad}"}))


@pytest.mark.parametrize(
    ("method", "headers", "passes"),
    [
        ("POST", {}, True),
        ("POST", {"Origin": "https://chat.example"}, True),
        ("POST", {"Origin": "http://chat.example"}, True),  # the request's own scheme and Host
        ("POST", {"Origin": "https://friend.example"}, True),
        ("POST", {"Origin": "https://evil.example"}, False),
        ("POST", {"Origin": "null"}, False),
        ("GET", {"Origin": "https://chat.example:8443"}, False),
        ("GET", {"Sec-Fetch-Site": "same-origin"}, True),
        ("GET", {"Sec-Fetch-Site": "none"}, True),
        ("POST", {"Sec-Fetch-Site": "none"}, False),
        ("GET", {"Sec-Fetch-Site": "same-site"}, False),
        ("GET", {"Sec-Fetch-Site": "cross-site"}, False),
    ],
)
def test_another_sites_page_cannot_use_the_cookie(method: str, headers: dict[str, str], passes: bool) -> None:
    door = authenticator()
    cookie = {"Cookie": f"{COOKIE}={door.sign_in_cookie(token_digest(TOKEN))}"}
    asked = request({**cookie, **headers}, method=method)
    if passes:
        assert door.identify(asked).member.id == "ana"
    else:
        with pytest.raises(CrossSite):
            door.identify(asked)


def test_a_bearer_is_not_held_to_the_cross_site_rule() -> None:
    asked = request({"Authorization": f"Bearer {TOKEN}", "Origin": "https://any.example"})
    assert authenticator().identify(asked).member.id == "ana"


def test_the_trusted_header_counts_only_from_the_front_door_with_its_secret(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("DOOR_SECRET", "s3cret")
    door = authenticator(
        trusted_header={"header": "X-Forwarded-User", "from": ["10.0.0.0/24"], "secret_env": "DOOR_SECRET"}
    )
    shown = {"X-Forwarded-User": "maria@example.com", "X-Isthmus-Secret": "s3cret"}
    assert door.identify(request(shown)).member.id == "maria@example.com"
    for headers, peer in (
        (shown, ("10.0.1.2", 1)),
        ({**shown, "X-Isthmus-Secret": "guess"}, ("10.0.0.2", 1)),
        ({"X-Forwarded-User": "maria"}, ("10.0.0.2", 1)),
        ({**shown, "X-Forwarded-For": "10.0.0.2"}, ("192.0.2.1", 1)),
    ):
        with pytest.raises(Unauthenticated):
            door.identify(request(headers, peer=peer))


@pytest.mark.parametrize("value", ["", "a\tb", "x" * 257, "a\x7f"])
def test_a_trusted_header_that_is_no_plain_id_is_refused(value: str) -> None:
    door = authenticator(trusted_header={"header": "X-User", "from": ["10.0.0.2/32"]})
    with pytest.raises(BadIdentity):
        door.identify(request({"X-User": value}))


def test_two_trusted_headers_are_refused() -> None:
    door = authenticator(trusted_header={"header": "X-User", "from": ["10.0.0.2/32"]})
    asked = request({})
    headers = asked.headers.copy()
    headers.extend([("X-User", "ana"), ("X-User", "root")])
    with pytest.raises(BadIdentity):
        door.identify(asked.clone(headers=headers))
