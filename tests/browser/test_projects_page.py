"""Projects on the page: a place with files, conversations and an attached folder of its own."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from tests.support.browser import Page, beside_the_loop

pytestmark = pytest.mark.browser

GUIDE = """\
# Handbook

What everybody needs.

## Deployment

The harbour master opens the lock gates at seven.
Ships wait in the basin.
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder of which two files can be indexed, and the others not, each for a reason of its own."""
    top = tmp_path / "handbook"
    for path, content in {
        "guide.md": GUIDE,
        "src/app.py": 'HARBOUR = "Lisbon"\n',
        "drafts/later.md": "The harbour of later.\n",
        ".gitignore": "drafts/\n",
        "node_modules/left-pad/index.js": "x",
        "node_modules/left-pad/readme.md": "harbour",
        "photo.jpg": "no picture",
        ".env": "TOKEN=1",
        "empty.txt": "",
    }.items():
        (top / path).parent.mkdir(parents=True, exist_ok=True)
        (top / path).write_text(content)
    return top


@beside_the_loop
def test_an_attached_folder_is_reported_file_by_file_and_found_with_its_lines(
    page: Page, service: Any, folder: Path
) -> None:
    page.enter(service.token)
    page.create_project("Harbour")
    page.attach_folder(folder)

    assert page.one("#folder-report").text == "handbook: 2 files indexed as 3 passages, 7 skipped."
    reported = page.folder_groups()
    assert reported == {
        "Indexed 2": ["guide.md 2 passages", "src/app.py 1 passage"],
        "Skipped: ignored (dependencies, build output or .gitignore) 3": [
            "drafts/ 1 file",
            "node_modules/ 2 files",
        ],
        "Skipped: looks like a secret 1": [".env "],
        "Skipped: empty 1": ["empty.txt "],
        "Skipped: hidden 1": [".gitignore "],
        "Skipped: not a kind of file that is indexed 1": ["photo.jpg "],
    }

    assert page.search("when do the lock gates open") == ["guide.md lines 5–8"]
    assert page.texts("#hits .headings") == ["Handbook › Deployment"]
    assert "seven" in page.one("#hits blockquote").text
    assert page.texts("#hits mark") == ["opens", "lock", "gates"]
    assert "1 passage found. Words only: " in page.one("#search-note").text

    page.driver.refresh()
    page.wait(lambda: page.folder_groups() == reported)
    assert page.one("#folder-status").text.startswith("handbook: 3 passages, attached ")


@beside_the_loop
def test_a_refused_folder_says_why_and_leaves_what_was_attached(
    page: Page, service: Any, folder: Path, tmp_path: Path
) -> None:
    page.enter(service.token)
    page.create_project("Harbour")
    page.attach_folder(folder)
    pictures = tmp_path / "pictures"
    pictures.mkdir()
    (pictures / "one.jpg").write_bytes(b"x")
    page.attach_folder(pictures)

    assert page.one("#folder-problem").text
    assert page.one("#folder-report").text == ""
    assert page.search("Lisbon") == ["src/app.py line 1"]


@beside_the_loop
def test_a_folder_on_its_way_shows_its_bytes_and_is_cancelled_without_a_trace(
    page: Page, service: Any, folder: Path, tmp_path: Path
) -> None:
    page.enter(service.token)
    page.create_project("Harbour")
    page.attach_folder(folder)
    large = tmp_path / "large"
    large.mkdir()
    (large / "novel.txt").write_text("a long story\n" * 40_000)
    page.slow_down(100_000)
    page.choose_folder(large)
    page.wait(lambda: 0 < float(str(page.one("#folder-sent").get_property("value"))) < 1)
    assert re.fullmatch(r"[\d.]+ k?B of 520\.\d kB sent", page.one("#folder-sent-words").text)

    page.one("#folder-cancel").click()
    page.wait(lambda: page.one("#folder-choose").is_enabled())
    assert not page.one("#folder-progress").is_displayed()
    assert page.one("#folder-problem").text == ""
    assert page.search("Lisbon story") == ["src/app.py line 1"]


@beside_the_loop
def test_a_folder_is_detached_only_after_a_question(page: Page, service: Any, folder: Path) -> None:
    page.enter(service.token)
    page.create_project("Harbour")
    page.attach_folder(folder)
    page.one("#folder-detach").click()
    page.one("#confirm-no").click()
    assert page.search("Lisbon") == ["src/app.py line 1"]

    page.one("#folder-detach").click()
    page.one("#confirm-yes").click()
    page.wait(lambda: page.one("#folder-status").text.startswith("No folder is attached"))
    assert page.search("Lisbon") == []
    assert page.one("#search-note").text.startswith("Nothing is indexed here yet.")
    assert page.folder_groups() == {}


@beside_the_loop
def test_what_the_limits_rule_out_is_named_without_its_bytes_and_gitignore_goes_first(
    page: Page, service: Any
) -> None:
    page.enter(service.token)
    script = """
        const [limits, done] = arguments;
        const paths = ["top/a.md", "top/dist/b.md", "top/c.mp4", "top/d/.gitignore", "top/uv.lock", "top/Makefile"];
        const files = paths.map((path) => Object.defineProperty(new File(["0123456789"], "x"),
          "webkitRelativePath", { value: path }));
        import("/folder-form.js").then(({ folderForm }) => {
          const { form, folderName, bytes } = folderForm(files, limits);
          done([folderName, form.get("folder_name"), bytes, form.getAll("file").map((f) => [f.name, f.size])]);
        });
    """
    limits = {
        "ignored_directories": ["dist"],
        "ignored_names": ["uv.lock"],
        "extensionless": ["makefile"],
        "extensions": ["md", "lock"],
        "max_document_bytes": 7,
        "max_parts": 6,
    }
    assert page.driver.execute_async_script(script, limits) == [
        "top",
        "top",
        24,
        [
            ["top/d/.gitignore", 8],
            ["top/a.md", 8],
            ["top/Makefile", 8],
            ["top/dist/b.md", 0],
            ["top/c.mp4", 0],
        ],
    ]


@beside_the_loop
def test_a_project_has_files_and_conversations_of_its_own(page: Page, service: Any, notes: Path) -> None:
    page.enter(service.token)
    page.attach(notes)
    page.say("hello from the main workspace")
    page.wait_for_answer()

    page.create_project("Harbour", "Speak of ships.")
    assert page.all("#messages article") == []
    plan = notes.with_name("plan.txt")
    plan.write_text("four words are here")
    page.attach(plan)
    page.say("count words in plan.txt")
    assert page.wait_for_answer().find_element("class name", "body").text == "plan.txt has 4 words."
    page.wait(lambda: page.listed_files() == {"public/plan.txt"})

    page.driver.refresh()
    page.wait_for_answer()
    assert page.open_place() == "Harbour"
    assert page.texts(".question .body") == ["count words in plan.txt"]

    page.choose_place("Main workspace")
    page.wait(lambda: page.texts(".question .body") == ["hello from the main workspace"])
    page.wait(lambda: page.listed_files() == {"public/notes.txt"})
    assert not page.one("#index").is_displayed()


@beside_the_loop
def test_a_file_that_waits_for_its_message_does_not_follow_into_another_place(
    page: Page, service: Any, notes: Path
) -> None:
    page.enter(service.token)
    page.attach(notes)
    page.create_project("Harbour")
    assert page.all("#attachments li") == []
    page.say("hello")
    page.wait_for_answer()
    assert page.texts(".question .deliveries li") == []
    assert page.listed_files() == set()


@beside_the_loop
def test_a_project_is_renamed_and_instructed_and_a_taken_name_is_refused_in_words(
    page: Page, service: Any
) -> None:
    page.enter(service.token)
    page.create_project("Lighthouse")
    page.create_project("Harbour", "Speak of ships.")
    page.one('[aria-label="Edit Harbour"]').click()
    assert page.one("#project-instructions").get_property("value") == "Speak of ships."
    page.one("#project-name").clear()
    page.one("#project-name").send_keys("Lighthouse")
    page.one("#project-save").click()
    page.wait(lambda: "Lighthouse" in page.one("#project-problem").text)

    page.one("#project-name").clear()
    page.one("#project-name").send_keys("Port")
    page.one("#project-instructions").send_keys(" And of cranes.")
    page.one("#project-save").click()
    page.wait(lambda: page.open_place() == "Port")
    assert page.one("#place-name").text == "Port"

    page.driver.refresh()
    page.wait(lambda: page.open_place() == "Port")
    page.one('[aria-label="Edit Port"]').click()
    assert page.one("#project-instructions").get_property("value") == "Speak of ships. And of cranes."


@beside_the_loop
def test_a_project_is_deleted_only_after_a_question(page: Page, service: Any) -> None:
    page.enter(service.token)
    page.create_project("Harbour")
    page.one('[aria-label="Edit Harbour"]').click()
    page.one("#project-delete").click()
    assert "Harbour" in page.one("#confirm-question").text
    page.one("#confirm-no").click()
    page.one("#project-cancel").click()
    assert page.open_place() == "Harbour"

    page.one('[aria-label="Edit Harbour"]').click()
    page.one("#project-delete").click()
    page.one("#confirm-yes").click()
    page.wait(lambda: page.open_place() == "Main workspace")
    page.driver.refresh()
    page.wait(lambda: page.texts("#projects .place") == ["Main workspace"])


@beside_the_loop
@pytest.mark.parametrize("width", [360, 1000, 1400])
def test_every_part_of_a_project_fits_the_window_and_is_reached(
    page: Page, service: Any, folder: Path, width: int
) -> None:
    (folder / ("long" * 40 + ".md")).write_text("harbour " + "w" * 300)
    page.enter(service.token)
    page.create_project("Harbour " + "w" * 60)
    page.attach_folder(folder)
    page.resize(width, 800)
    for view, part in {"place": "#panel", "index": "#index", "chat": "#chat"}.items():
        button = page.one(f'#views [data-view="{view}"]')
        if button.is_displayed():
            button.click()
        assert page.one(part).is_displayed()
        if view == "index":
            assert len(page.search("harbour")) == 3
        assert page.overflow() <= 0
