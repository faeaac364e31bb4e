"""The page in a real Chromium, before the real service. One browser serves a module; no test sees another's cookies."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.browser import Page, chromium, chromium_is_there, in_a_thread

MISSING = "NO CHROMIUM: THE PAGE IS NOT TESTED. Put chromium and chromedriver on PATH."


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Without a browser these tests are left out, and a person is told; in CI (CI=true) they run, and fail."""
    if chromium_is_there() or os.environ.get("CI") == "true":
        return
    left_out = [item for item in items if item.get_closest_marker("browser")]
    items[:] = [item for item in items if item not in left_out]
    config.hook.pytest_deselected(items=left_out)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    if not chromium_is_there():
        terminalreporter.write_line(MISSING, red=True, bold=True)


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Any, Path]]:
    """A Chromium and the directory of its downloads."""
    if not chromium_is_there():
        pytest.fail(MISSING, pytrace=False)
    directory = tmp_path_factory.mktemp("chromium")
    with chromium(directory) as driver:
        yield driver, directory / "downloads"


@pytest.fixture
async def page(service: Any, browser: tuple[Any, Path]) -> AsyncIterator[Page]:
    """The page, opened; afterwards its console must know of no script error and no breach of the policy."""
    shown = Page(browser[0], service.url, browser[1])
    await in_a_thread(shown.open)
    try:
        yield shown
        assert await in_a_thread(shown.faults) == []
    finally:
        await in_a_thread(shown.leave)


@pytest.fixture
def notes(tmp_path: Path) -> Path:
    path = tmp_path / "notes.txt"
    path.write_bytes(b"one two three\n")
    return path
