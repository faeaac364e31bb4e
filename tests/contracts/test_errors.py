"""Every error that a package can raise has its one row, and every code its place in the documentation."""

from __future__ import annotations

import inspect
from pathlib import Path

import pytest

import proxy.errors
import rag.errors
import workspace.errors
from proxy.errors import INTERNAL, TABLE, answer, facts, row_of

DOCS = (Path(__file__).parents[2] / "docs" / "errors.md").read_text(encoding="utf-8")
BASES = {
    proxy.errors.ProxyError,
    rag.errors.RagError,
    rag.errors.StartUpError,
    rag.errors.OverLimit,
    workspace.errors.WorkspaceError,
}


def raised() -> list[type[Exception]]:
    found = []
    for module in (proxy.errors, rag.errors, workspace.errors):
        for _, kind in inspect.getmembers(module, inspect.isclass):
            if issubclass(kind, Exception) and kind.__module__ == module.__name__ and kind not in BASES:
                found.append(kind)
    return found


@pytest.mark.parametrize("kind", raised(), ids=lambda kind: kind.__name__)
def test_an_error_has_a_row_unless_it_only_stops_the_start(kind: type[Exception]) -> None:
    assert (row_of(kind.__new__(kind)) is INTERNAL) == issubclass(kind, rag.errors.StartUpError)


@pytest.mark.parametrize("kind", TABLE, ids=lambda kind: kind.__name__)
def test_a_rows_message_uses_only_the_facts_of_its_error(kind: type[Exception]) -> None:
    arguments = {
        name: 7 if "int" in str(parameter.annotation) or "float" in str(parameter.annotation) else "x"
        for name, parameter in inspect.signature(kind).parameters.items()
    }
    if "allowed" in arguments:
        arguments["allowed"] = ("x",)
    error = kind(**arguments)
    told = answer(error, "r1")
    assert told.message
    assert "{" not in told.message
    assert told.body["error"]["code"] == told.code
    assert ("request_id" in told.body["error"]) == (told.status >= 500)


def test_an_unknown_error_tells_its_id_and_nothing_else() -> None:
    told = answer(RuntimeError("SELECT secret FROM /etc/passwd"), "r1")
    assert told.status == 500
    assert set(told.body["error"]) == {"code", "message", "request_id"}
    assert "passwd" not in str(told.body)


@pytest.mark.parametrize("code", sorted({row.code for row in [*TABLE.values(), INTERNAL] if row.code}))
def test_a_code_is_documented(code: str) -> None:
    assert f"`{code}`" in DOCS


def test_facts_leave_out_what_is_none() -> None:
    assert facts(workspace.errors.InvalidName("a b")) == {"name": "a b"}
