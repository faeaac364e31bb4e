from __future__ import annotations

from pathlib import Path

import pytest

from proxy.settings import SettingsError, load_settings


def write(tmp_path: Path, text: str) -> Path:
    path = tmp_path / "config.toml"
    path.write_text(text, encoding="utf-8")
    return path


def test_the_environment_is_stronger_than_the_file_and_the_file_than_the_defaults(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = write(tmp_path, '[server]\nport = 9000\nhost = "127.0.0.2"\n[rag.local]\nmax_files = 7\n')
    monkeypatch.setenv("ISTHMUS__SERVER__PORT", "9100")
    settings = load_settings(path)
    assert (settings.server.port, settings.server.host) == (9100, "127.0.0.2")
    assert (settings.rag.local.max_files, settings.chat.heartbeat) == (7, 10)


def test_a_list_of_tables_comes_from_the_environment_whole_as_json(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ISTHMUS__AGENTS", '[{"key": "helper", "url": "ws://h:1/pico/ws"}]')
    assert [agent.key for agent in load_settings(None).agents] == ["helper"]


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("[server]\nprot = 1\n", "server.prot: there is no such key"),
        ("[surver]\nport = 1\n", "surver: there is no such key"),
        ("[server]\nport = 99999\n", "server.port: "),
        ("[server\n", "config.toml: "),
        ('[[agents]]\nkey = "Ana B"\n', "agents.0.key: "),
        ('[[agents]]\nkey = "a"\nuid = 0\n', "agents.0: uid and gid 0 need allow_root_agent=true"),
        ('[[agents]]\nkey = "a"\n[[agents]]\nkey = "a"\n', "each key once"),
        ('[[agents]]\nkey = "a"\nurl = "ws://h/x{member}/ws"\n', "whole DNS label or path segment"),
        ('[[agents]]\nkey = "a"\nurl = "ws://{user}/ws"\n', "{user}"),
        ('[[agents]]\nkey = "a"\nurl = "ws://u:p@h/ws"\n', "without user"),
        ('[[agents]]\nkey = "a"\ntoken = "x"\ntoken_env = "Y"\n', "one of token, token_env and token_file"),
        ('[media]\nfile_mode = "rw"\n', "media.file_mode: "),
        (f'[auth]\ntokens = [{{member = "*", sha256 = "{"a" * 64}"}}]\n', 'member="*" is for agent tokens'),
        (f'[auth]\ntokens = [{{member = "a", sha256 = "{"a" * 64}", agents = ["x"]}}]\n', "no agent 'x'"),
        ('[auth.trusted_header]\nheader = "X"\nfrom = ["10.0.0.0/8"]\n', "needs secret_env"),
    ],
)
def test_a_setting_that_cannot_be_used_is_named_with_its_problem(
    tmp_path: Path, text: str, problem: str
) -> None:
    with pytest.raises(SettingsError) as refused:
        load_settings(write(tmp_path, text))
    assert problem in str(refused.value)


def test_an_unknown_environment_key_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ISTHMUS__SERVER__PROT", "1")
    with pytest.raises(SettingsError, match="ISTHMUS__SERVER__PROT"):
        load_settings(None)


def test_the_data_directory_is_the_users_own_when_not_root(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr("os.geteuid", lambda: 1000)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    assert load_settings(None).store.directory == tmp_path / "isthmus"
    monkeypatch.setattr("os.geteuid", lambda: 0)
    assert load_settings(None).store.directory == Path("/var/lib/isthmus")
