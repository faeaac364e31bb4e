"""What a member does with the built-in page, in a real browser before the real service."""

from __future__ import annotations

import json
import urllib.parse
import urllib.request
from pathlib import Path
from typing import Any

import pytest

from tests.support.browser import Page, beside_the_loop

pytestmark = pytest.mark.browser

PAGE_OF_FILES = 500
LAST: dict[str, object] = {"content": "sent", "context_usage": {"used_tokens": 1}}


def as_client(service: Any, path: str) -> bytes:
    """A file as a program with the bearer gets it."""
    address = f"{service.url.rstrip('/')}/v1/media?{urllib.parse.urlencode({'path': path})}"
    request = urllib.request.Request(address, headers={"Authorization": f"Bearer {service.token}"})
    with urllib.request.urlopen(request, timeout=10) as response:
        return bytes(response.read())


@beside_the_loop
def test_a_wrong_token_is_refused_in_words_and_the_right_one_opens_the_page(page: Page, service: Any) -> None:
    page.sign_in("x" * 40)
    refusal = page.wait(lambda: page.one("#sign-in-problem").text)
    assert not page.one("#app").is_displayed()

    page.one("#token").clear()
    page.enter(service.token)

    assert refusal
    assert not page.one("#sign-in").is_displayed()
    assert page.one("#token").get_property("value") == ""
    assert page.driver.execute_script("return document.cookie") == ""


@beside_the_loop
def test_an_answer_grows_while_the_agent_writes(page: Page, service: Any) -> None:
    page.enter(service.token)
    page.say("hello there")
    lengths = page.lengths_until_answered()

    assert len(lengths) >= 5
    assert lengths == sorted(lengths)
    assert page.texts(".question .body") == ["hello there"]


@beside_the_loop
def test_files_go_in_and_come_back_and_are_there_after_a_reload(
    page: Page, service: Any, notes: Path
) -> None:
    page.enter(service.token)
    page.attach(notes)
    page.say("make a report")
    page.wait_for_answer()

    link = page.one(".answer .deliveries a")
    name = link.text
    delivered = as_client(service, f"public/attachments/{name}")
    assert delivered.startswith(b"# Report")
    assert page.download(link) == delivered
    both = {"public/notes.txt", f"public/attachments/{name}"}
    page.wait(lambda: page.listed_files() == both)
    assert page.download(page.one('#files a[download="notes.txt"]')) == notes.read_bytes()

    answer = page.one(".answer .body").text
    page.driver.refresh()
    page.wait_for_answer()
    page.wait(lambda: page.listed_files() == both)
    assert page.texts(".question .body") == ["make a report"]
    assert page.texts(".question .deliveries li") == ["notes.txt"]
    assert page.one(".answer .body").text == answer
    assert page.download(page.one(".answer .deliveries a")) == delivered


@beside_the_loop
def test_a_refused_file_says_why_and_hinders_no_message(page: Page, service: Any, tmp_path: Path) -> None:
    page.enter(service.token)
    program = tmp_path / "setup.exe"
    program.write_bytes(b"MZ")
    page.attach(program)

    assert page.texts("#attachments .failed .name") == ["setup.exe"]
    assert "setup.exe" in page.one("#attachments .failed [role=alert]").text
    page.say("hello")
    page.wait_for_answer()
    assert page.texts(".question .deliveries li") == []
    assert page.listed_files() == set()


@beside_the_loop
def test_message_text_never_becomes_markup_or_a_file(page: Page, service: Any) -> None:
    page.enter(service.token)
    text = "<img src=x onerror=alert(1)> \N{PAPERCLIP} notes.txt — public/notes.txt javascript:alert(1)"
    page.say(text)
    page.wait_for_answer()

    assert page.texts(".question .body") == [text]
    assert page.all("#messages img") == []
    assert page.all("#messages a") == []


@beside_the_loop
def test_a_link_shows_the_host_it_goes_to(page: Page, service: Any) -> None:
    page.enter(service.token)
    page.say("https://example.com/a?b=c. and https://example.com@evil.test/x, mailto:ana@example.com")
    page.wait_for_answer()

    links = page.all(".question a")
    targets = [link.get_attribute("href") for link in links]
    assert targets == [
        "https://example.com/a?b=c",
        "https://example.com@evil.test/x",
        "mailto:ana@example.com",
    ]
    assert [host.strip() for host in page.texts(".question .host")] == ["(evil.test)"]


@beside_the_loop
def test_a_new_conversation_is_empty_and_stays_after_a_reload(page: Page, service: Any) -> None:
    page.enter(service.token)
    page.say("hello")
    page.wait_for_answer()
    page.one("#new-conversation").click()
    assert page.all("#messages article") == []

    page.say("good morning")
    page.wait_for_answer()
    page.driver.refresh()
    page.wait_for_answer()
    assert page.texts(".question .body") == ["good morning"]


@beside_the_loop
def test_signing_out_ends_the_cookie(page: Page, service: Any) -> None:
    page.enter(service.token)
    page.one("#sign-out").click()
    page.wait(lambda: page.one("#sign-in").is_displayed())

    page.driver.refresh()
    page.wait(lambda: page.one("#sign-in").is_displayed())
    assert not page.one("#app").is_displayed()


@beside_the_loop
@pytest.mark.parametrize("width", [360, 1400])
def test_nothing_is_wider_than_the_window(page: Page, service: Any, notes: Path, width: int) -> None:
    page.resize(width, 800)
    page.enter(service.token)
    page.attach(notes)
    page.say("make a report " + "w" * 300)
    page.wait_for_answer()
    assert page.overflow() <= 0

    if width == 360:
        assert not page.one("#panel").is_displayed()
        page.one('#views [data-view="place"]').click()
    assert page.one("#panel").is_displayed()
    assert page.overflow() <= 0


@beside_the_loop
def test_more_files_than_a_page_are_shown_when_asked_for(page: Page, service: Any, notes: Path) -> None:
    page.enter(service.token)
    page.attach(notes)
    for number in range(PAGE_OF_FILES):
        (service.public / f"a{number:03}.txt").write_bytes(b"x")
    page.one("#files-refresh").click()
    page.wait(lambda: len(page.listed_files()) == PAGE_OF_FILES)

    page.one("#files-more").click()
    page.wait(lambda: len(page.listed_files()) == PAGE_OF_FILES + 1)
    assert not page.one("#files-more").is_displayed()


@beside_the_loop
def test_a_delivery_that_failed_says_why_and_links_to_nothing(page: Page, service: Any) -> None:
    page.enter(service.token)
    sent = {"type": "file", "url": "$MEDIA1", "filename": "plan.pdf"}
    foreign = {"type": "file", "url": "http://127.0.0.1:1/pico/media/x", "filename": "evil.txt"}
    steps: list[dict[str, Any]] = [{"media": {"content": "x", "status": 404}}]
    for said in ({"attachments": [sent]}, {"attachments": [foreign]}, LAST):
        payload = {"message_id": f"m{len(steps)}", "content": "", **said}
        steps.append({"frame": {"type": "message.create", "payload": payload}})
    page.say(f"play-inline {json.dumps(steps)}")
    answer = page.wait_for_answer()

    assert sorted(page.texts(".answer .deliveries .failed")) == [
        "⚠ evil.txt could not be delivered: the agent pointed to a place it may not deliver from",
        "⚠ plan.pdf could not be delivered: the agent answered with status 404",
    ]
    assert answer.find_elements("css selector", ".deliveries a") == []


@beside_the_loop
def test_a_stream_that_is_cut_is_told_as_that_and_a_reload_has_the_whole_answer(
    page: Page, service: Any
) -> None:
    page.enter(service.token)
    page.driver.execute_script("""
        const whole = window.fetch;
        window.fetch = async (address, options) => {
          const response = await whole(address, options);
          if (!String(address).includes("completions")) return response;
          const { value } = await response.body.getReader().read();
          return new Response(value);
        };
    """)
    page.say("hello there")
    assert "connection_lost" in page.wait_for_answer().text

    page.wait(lambda: _reloaded_answer(page).startswith("You said: hello there"))
    assert page.all(".answer .problem") == []


def _reloaded_answer(page: Page) -> str:
    page.driver.refresh()
    page.wait(lambda: page.all(".question"))
    return "".join(page.texts(".answer .body"))
