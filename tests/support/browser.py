"""A real Chromium, and the page in it as a member sees it: what one reads, types, clicks and downloads.

Everything here is synchronous and waits for conditions with a bound; a test runs it beside the event loop
of the service.
"""

from __future__ import annotations

import asyncio
import functools
import shutil
import time
from collections.abc import Callable, Coroutine, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

from selenium import webdriver
from selenium.common.exceptions import NoSuchElementException, StaleElementReferenceException
from selenium.webdriver.chrome.options import Options
from selenium.webdriver.chrome.service import Service
from selenium.webdriver.common.by import By
from selenium.webdriver.common.keys import Keys
from selenium.webdriver.remote.webelement import WebElement

T = TypeVar("T")

PATIENCE = 15.0  # seconds for anything the page does on its own
FLAGS = (
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1",
    "--lang=en",
)


async def in_a_thread(work: Callable[..., T], *args: Any, **named: Any) -> T:
    """Wait for the browser in a thread of its own, which is gone afterwards; the loop goes on serving."""
    with ThreadPoolExecutor(max_workers=1) as thread:
        call = functools.partial(work, *args, **named)
        return await asyncio.get_running_loop().run_in_executor(thread, call)


def beside_the_loop(test: Callable[..., None]) -> Callable[..., Coroutine[Any, Any, None]]:
    """A test that waits for the browser, run beside the loop that the service needs."""

    @functools.wraps(test)
    async def run(**fixtures: Any) -> None:
        await in_a_thread(test, **fixtures)

    return run


def chromium_is_there() -> bool:
    """Whether both the browser and its driver are on PATH."""
    return shutil.which("chromium") is not None and shutil.which("chromedriver") is not None


@contextmanager
def chromium(directory: Path) -> Iterator[webdriver.Chrome]:
    """A fresh Chromium whose profile and downloads lie below `directory`."""
    downloads = directory / "downloads"
    downloads.mkdir()
    options = Options()
    options.binary_location = shutil.which("chromium") or ""
    for flag in (*FLAGS, f"--user-data-dir={directory / 'profile'}", "--window-size=1400,900"):
        options.add_argument(flag)
    options.add_experimental_option("prefs", {"download.default_directory": str(downloads)})
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    driver = webdriver.Chrome(options=options, service=Service(shutil.which("chromedriver")))
    try:
        yield driver
    finally:
        driver.quit()


class Page:
    """The built-in page at `url`, opened in `driver`."""

    def __init__(self, driver: webdriver.Chrome, url: str, downloads: Path) -> None:
        self.driver = driver
        self.url = url
        self._downloads = downloads

    def open(self) -> None:
        self.driver.get(self.url)

    def leave(self) -> None:
        """Go away and leave nothing for the next page: cookies count for every port of a host."""
        self.driver.get("about:blank")
        self.driver.execute_cdp_cmd("Network.clearBrowserCookies", {})
        self.driver.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})
        self.slow_down(-1)
        self.faults()

    def enter(self, token: str) -> None:
        """Sign in and wait for the conversation."""
        self.sign_in(token)
        self.wait_until_signed_in()

    def sign_in(self, token: str) -> None:
        self.wait(lambda: self.one("#token").is_displayed())
        self.one("#token").send_keys(token, Keys.ENTER)

    def wait_until_signed_in(self) -> None:
        self.wait(lambda: self.one("#text").is_displayed())

    def create_project(self, name: str, instructions: str = "") -> None:
        """Make a project, which is open then."""
        self.one("#new-project").click()
        self.one("#project-name").send_keys(name)
        self.one("#project-instructions").send_keys(instructions)
        self.one("#project-save").click()
        self.wait(lambda: self.open_place() == name)

    def open_place(self) -> str:
        """What the list of projects shows as the open one."""
        return str(self.one("#projects [aria-current]").get_property("textContent"))

    def choose_place(self, name: str) -> None:
        next(place for place in self.all("#projects .place") if place.text == name).click()
        self.wait(lambda: self.open_place() == name)

    def choose_folder(self, folder: Path) -> None:
        """Choose a directory of this disk to attach."""
        self.wait(lambda: self.one("#folder-status").text)
        self.one("#folder-choice").send_keys(str(folder))

    def attach_folder(self, folder: Path) -> None:
        """Choose a directory and wait until it is indexed or refused."""
        self.choose_folder(folder)
        self.wait(lambda: self.one("#folder-report").text or self.one("#folder-problem").text)
        self.wait(lambda: self.one("#folder-choose").is_enabled())

    def folder_groups(self) -> dict[str, list[str]]:
        """What became of the files of the attached folder: the words of each group, and its lines."""
        script = """
            return Object.fromEntries([...document.querySelectorAll("#folder-files details")].map((group) =>
              [group.querySelector("summary").textContent,
               [...group.querySelectorAll("li")].map((line) => line.textContent)]));
        """
        return dict(self.driver.execute_script(script))

    def search(self, query: str) -> list[str]:
        """Ask the index; the source line of each hit."""
        self.one("#query").clear()
        self.one("#query").send_keys(query, Keys.ENTER)
        self.wait(lambda: self.one("#search-note").text)
        return self.texts("#hits h3")

    def say(self, text: str) -> None:
        """Write a message and send it by keyboard, once the page lets one send."""
        self.wait(lambda: self.one("#send").is_enabled())
        self.one("#text").send_keys(text, Keys.ENTER)

    def attach(self, *files: Path) -> None:
        """Choose files with the paper-clip and wait until each is uploaded or refused."""
        self.one("#file-choice").send_keys("\n".join(str(file) for file in files))
        self.wait(lambda: self.all("#attachments li") and not self.all("#attachments progress"))

    def wait_for_answer(self, number: int = 1) -> WebElement:
        """The `number`-th answer of the conversation, when nothing more comes."""
        finished = '#messages .answer[aria-busy="false"]'
        return self.wait(
            lambda: len(self.all(finished)) >= number and self.all("#messages .answer")[number - 1]
        )

    def lengths_until_answered(self, number: int = 1) -> list[int]:
        """The lengths that the text of the `number`-th answer had while it was watched, without repeats."""
        script = """
            const [number, done] = arguments, lengths = [], start = performance.now();
            const look = setInterval(() => {
              const answer = document.querySelectorAll("#messages .answer")[number - 1];
              const length = answer?.querySelector(".body").textContent.length ?? 0;
              if (length !== lengths.at(-1)) lengths.push(length);
              const over = answer?.ariaBusy === "false" || performance.now() - start > 15000;
              if (over) { clearInterval(look); done(lengths); }
            }, 5);
        """
        self.driver.set_script_timeout(2 * PATIENCE)
        return list(self.driver.execute_async_script(script, number))

    def listed_files(self) -> set[str]:
        """The paths of the list of files."""
        script = """
            return [...document.querySelectorAll("#files > div")].flatMap((folder) => {
              const path = folder.querySelector("h3").textContent;
              return [...folder.querySelectorAll("a")].map((link) => `${path}/${link.textContent}`);
            });
        """
        return set(self.driver.execute_script(script))

    def download(self, link: WebElement) -> bytes:
        """Click a link and read what arrived in the downloads."""
        before = set(self._downloads.iterdir())
        link.click()

        def arrived() -> list[Path]:
            new = set(self._downloads.iterdir()) - before
            return [path for path in new if path.suffix != ".crdownload" and not path.name.startswith(".")]

        return self.wait(arrived)[0].read_bytes()

    def resize(self, width: int, height: int) -> None:
        """Give the page a viewport of exactly this size; a window does not become as small as a telephone."""
        metrics = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": False}
        self.driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", metrics)

    def slow_down(self, rate: int) -> None:
        """Let the page send at most so many bytes a second; -1 is as many as it can."""
        conditions = {"offline": False, "latency": 0, "downloadThroughput": -1, "uploadThroughput": rate}
        self.driver.execute_cdp_cmd("Network.enable", {})
        self.driver.execute_cdp_cmd("Network.emulateNetworkConditions", conditions)

    def overflow(self) -> int:
        """By how many pixels anything is wider than its place: the window or a part of the page."""
        script = """
            const parts = document.querySelectorAll("header, #messages, #panel, #composer, #index");
            const places = [document.documentElement, ...parts];
            return Math.max(...places.map((place) => place.scrollWidth - place.clientWidth));
        """
        return int(self.driver.execute_script(script))

    def faults(self) -> list[str]:
        """Script errors and breaches of the Content-Security-Policy in the console.

        That the network answered 401 or 404 is logged there too: that is the service's word, not the page's fault.
        """
        entries = self.driver.get_log("browser")  # type: ignore[no-untyped-call]  # selenium left it untyped
        return [e["message"] for e in entries if e["source"] != "network" and e["level"] != "DEBUG"]

    def one(self, selector: str) -> WebElement:
        return self.driver.find_element(By.CSS_SELECTOR, selector)

    def all(self, selector: str) -> list[WebElement]:
        return self.driver.find_elements(By.CSS_SELECTOR, selector)

    def texts(self, selector: str) -> list[str]:
        return [element.text for element in self.all(selector)]

    def wait(self, condition: Callable[[], T | bool | None]) -> T:
        """The first true value of `condition`. Raises TimeoutError after PATIENCE seconds without one."""
        end = time.monotonic() + PATIENCE
        while time.monotonic() < end:
            try:
                value: Any = condition()
            except (NoSuchElementException, StaleElementReferenceException):
                value = None  # the page is being loaded again
            if value:
                return value  # type: ignore[no-any-return]  # whatever the condition found
            time.sleep(0.02)
        raise TimeoutError(f"the page says: {self.one('body').text[:2000]!r}; the console: {self.faults()}")
