"""The page in a real Chromium, before the real service."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.browser import Page, chromium, chromium_is_there, in_a_thread


@pytest.fixture
async def page(service: Any, tmp_path: Path) -> AsyncIterator[Page]:
    """The page, opened; afterwards its console must know of no script error and no breach of the policy.

    The browser is driven from threads: the service may run on the loop of the test.
    """
    if not chromium_is_there():
        pytest.skip("no chromium and chromedriver on PATH: the page is not tested")
    browser = chromium(tmp_path)
    driver = await in_a_thread(browser.__enter__)
    try:
        shown = Page(driver, service.url, tmp_path / "downloads")
        await in_a_thread(shown.open)
        yield shown
        assert await in_a_thread(shown.faults) == []
    finally:
        await in_a_thread(browser.__exit__, None, None, None)
