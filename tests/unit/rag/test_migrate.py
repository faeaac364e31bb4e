"""What is pending, decided without a database."""

from __future__ import annotations

from pathlib import Path

import pytest

from rag.errors import DatabaseNewer, MigrationChanged
from rag.migrate import Migration, load_migrations, pending

A, B = Migration("0001_a", "SELECT 1"), Migration("0002_b", "SELECT 2")


def test_pending_is_what_was_not_applied() -> None:
    assert pending((A, B), {}) == (A, B)
    assert pending((A, B), {A.name: A.sha256}) == (B,)
    assert pending((A, B), {A.name: A.sha256, B.name: B.sha256}) == ()


def test_another_text_under_an_applied_name_is_refused() -> None:
    with pytest.raises(MigrationChanged) as refused:
        pending((A, B), {A.name: B.sha256})
    assert refused.value.name == "0001_a"


def test_applied_names_that_the_code_lacks_are_refused() -> None:
    with pytest.raises(DatabaseNewer) as refused:
        pending((A,), {A.name: A.sha256, "0003_c": "", "0002_b": ""})
    assert refused.value.names == ("0002_b", "0003_c")


def test_the_shipped_migrations_begin_with_the_turns() -> None:
    assert load_migrations()[0].name == "0001_turns"


@pytest.mark.parametrize(
    "names", [["0002_a.sql"], ["0001_a.sql", "0003_b.sql"], ["1_a.sql"], ["0001_a.sql", "0001_b.sql"]]
)
def test_a_gap_or_a_misnamed_file_is_refused(tmp_path: Path, names: list[str]) -> None:
    for name in names:
        (tmp_path / name).write_text("SELECT 1")
    with pytest.raises(ValueError, match="numbered from 0001 without a gap"):
        load_migrations(tmp_path)
