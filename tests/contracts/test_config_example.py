"""config.example.toml shows every key with its default, and each is explained."""

from __future__ import annotations

import tomllib
from collections.abc import Iterator
from pathlib import Path

from pydantic import BaseModel

from proxy.settings import AgentSettings, Settings, load_settings

ROOT = Path(__file__).parents[2]
TEXT = (ROOT / "config.example.toml").read_text(encoding="utf-8")
SHOWN_AS_COMMENT = {"media.extensions", "media.extensionless", "rag.local.extensions"}


def keys(model: type[BaseModel], prefix: str = "") -> Iterator[tuple[str, object]]:
    for name, field in model.model_fields.items():
        key = f"{prefix}{field.alias or name}"
        kind = field.annotation
        if isinstance(kind, type) and issubclass(kind, BaseModel):
            yield from keys(kind, f"{key}.")
        else:
            yield key, field.get_default(call_default_factory=True)


def shown(table: dict[str, object], prefix: str = "") -> Iterator[tuple[str, object]]:
    for name, value in table.items():
        if isinstance(value, dict):
            yield from shown(value, f"{prefix}{name}.")
        else:
            yield f"{prefix}{name}", value


def plain(value: object) -> object:
    return list(value) if isinstance(value, tuple) else value


def test_every_key_is_shown_with_its_default() -> None:
    example = tomllib.loads(TEXT)
    (agent,) = example.pop("agents")
    expected = {
        key: plain(value) for key, value in keys(Settings) if key not in {*SHOWN_AS_COMMENT, "agents"}
    }
    assert dict(shown(example)) == expected
    required = {"key": "demo"}
    assert agent == {key: plain(required.get(key, value)) for key, value in keys(AgentSettings)}


def test_the_long_lists_are_at_least_named() -> None:
    for key in SHOWN_AS_COMMENT:
        assert f"\n# {key.rpartition('.')[2]} = […]" in TEXT


def test_every_line_with_a_key_has_a_comment() -> None:
    bare = (
        "member_claim",
        "audience",
        "uploads_per",
        "turns_per",
        "searches_per",
        "reads_per",
        "changes_per",
    )
    for line in TEXT.splitlines():
        if (
            " = " in line
            and not line.startswith("#")
            and not line.startswith((*bare, "tokens", "secret_env"))
        ):
            assert "  #" in line or " # " in line, line


def test_the_example_can_be_loaded_as_it_stands() -> None:
    assert load_settings(ROOT / "config.example.toml").agents[0].key == "demo"
