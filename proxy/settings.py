"""Settings: ``config.toml`` and ``ISTHMUS__…`` environment variables, typed, frozen, validated once.

Sources, strongest first: environment (nested by ``__``; lists of tables only whole, as JSON), the file,
the defaults below. Unknown keys are errors in both. ``config.example.toml`` shows every key.
"""

from __future__ import annotations

import os
import re
import tomllib
from ipaddress import IPv4Network, IPv6Network, ip_network
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, ValidationError, model_validator
from pydantic_settings import BaseSettings, InitSettingsSource, PydanticBaseSettingsSource, SettingsConfigDict

ENV_PREFIX = "ISTHMUS__"
TAKEN_HEADERS = {
    "authorization",
    "cookie",
    "host",
    "origin",
    "content-length",
    "content-type",
    "transfer-encoding",
}

DOCUMENT_EXTENSIONS = (
    "pdf doc docx odt rtf xls xlsx ods csv tsv ppt pptx odp key pages numbers epub txt md mdx rst tex log"
).split()
IMAGE_EXTENSIONS = "png jpg jpeg gif webp bmp tif tiff svg heic heif avif ico psd ai eps".split()
MEDIA_EXTENSIONS = ("mp3 wav ogg oga opus flac m4a aac wma mp4 m4v mov avi mkv webm mpg mpeg srt vtt").split()
DATA_EXTENSIONS = (
    "json jsonl ndjson xml yaml yml toml ini cfg conf parquet feather arrow avro sqlite db sql geojson kml "
    "gpx npy npz h5 hdf5 mat ics vcf eml msg"
).split()
TEXT_EXTENSIONS = (
    "txt md mdx rst tex log csv tsv json jsonl yaml yml toml ini cfg conf xml sql html htm css scss"
).split()
ARCHIVE_EXTENSIONS = "zip tar gz tgz bz2 xz zst 7z rar".split()
CODE_EXTENSIONS = (
    "py pyi ipynb js mjs cjs ts tsx jsx vue svelte html htm css scss less java kt kts scala go rs c h cc cpp "
    "hpp cs fs swift m rb php pl lua r jl sh bash zsh fish ps1 bat cmd gradle tf proto graphql diff patch "
    "dart ex exs erl hs clj ml asm cmake mk"
).split()


class Section(BaseModel):
    """A table of the file: frozen, and a key it does not know is an error."""

    model_config = ConfigDict(extra="forbid", frozen=True)


def _web_address(url: str) -> str:
    if url and not re.fullmatch(r"https?://[^/?#@\s]+(/[^?#\s]*)?", url):
        raise ValueError("give an http:// or https:// address without user, query or fragment")
    return url


class ServerSettings(Section):
    host: str = "127.0.0.1"
    port: int = Field(8080, ge=0, le=65535)
    workers: int = Field(1, ge=1)
    drain_timeout: float = Field(15, ge=0)
    max_streams_per_member: int = Field(20, ge=1)
    max_uploads_per_member: int = Field(4, ge=1)
    header_timeout: float = Field(10, gt=0)
    max_connections: int = Field(2000, ge=1)
    hosts: tuple[str, ...] = ()
    cors_origins: tuple[str, ...] = ()
    public_url: Annotated[str, AfterValidator(_web_address)] = ""


class StoreSettings(Section):
    uid: int = Field(42070, ge=1)
    url: str = ""
    data_dir: str = ""

    @property
    def directory(self) -> Path:
        """Where Isthmus keeps its own things; never inside an agent's tree."""
        if self.data_dir:
            return Path(self.data_dir).absolute()
        if os.geteuid() == 0:
            return Path("/var/lib/isthmus")
        state = os.environ.get("XDG_STATE_HOME") or str(Path.home() / ".local" / "state")
        return Path(state) / "isthmus"


def _agent_key(key: str) -> str:
    if not re.fullmatch(r"[a-z0-9][a-z0-9_-]{0,63}", key):
        raise ValueError("is 1 to 64 of a-z, 0-9, _ and -, the first a letter or digit")
    return key


class AgentSettings(Section):
    key: Annotated[str, AfterValidator(_agent_key)]
    harness: Literal["pico"] = "pico"
    url: str = "ws://127.0.0.1:18790/pico/ws"
    token: str = ""
    token_env: str = ""
    token_file: str = ""
    workspaces: str = ""
    container_path: str = "/workspace"
    uid: int = Field(1000, ge=0)
    gid: int = Field(1000, ge=0)
    on_client_leave: Literal["continue", "stop"] = "continue"
    hook: bool = False
    allow_root_agent: bool = False

    @model_validator(mode="after")
    def _consistent(self) -> AgentSettings:
        if sum(bool(v) for v in (self.token, self.token_env, self.token_file)) > 1:
            raise ValueError("give one of token, token_env and token_file")
        if 0 in (self.uid, self.gid) and not self.allow_root_agent:
            raise ValueError("uid and gid 0 need allow_root_agent=true")
        if not self.container_path.startswith("/"):
            raise ValueError("container_path is absolute: the path as the agent sees it")
        check_url_template(self.url)
        return self

    @property
    def isolates_members(self) -> bool:
        return "{member}" in self.url

    @property
    def isolates_projects(self) -> bool:
        return "{project}" in self.url

    def secret(self) -> str:
        """The bearer that Isthmus shows the harness. Raises ValueError when its source is missing."""
        if self.token_env:
            if self.token_env not in os.environ:
                raise ValueError(f"agents[{self.key}].token_env: {self.token_env} is not in the environment")
            return os.environ[self.token_env]
        if self.token_file:
            try:
                return Path(self.token_file).read_text(encoding="utf-8").strip()
            except OSError as error:
                raise ValueError(f"agents[{self.key}].token_file: {error.strerror}") from error
        return self.token


def check_url_template(url: str) -> None:
    """``{member}`` and ``{project}`` stand for whole DNS labels or path segments, and nothing else may vary."""
    if not re.fullmatch(r"(ws|wss|http|https)://[^/?#@\s]+(/[^?#\s]*)?", url):
        raise ValueError(
            "url is ws://, wss://, http:// or https:// with a host, without user, query or fragment"
        )
    for name in re.findall(r"\{([^}]*)\}", url):
        if name not in {"member", "project"}:
            raise ValueError(f"url may contain {{member}} and {{project}}, not {{{name}}}")
    bare = re.sub(r"(?<=[/.])\{(member|project)\}(?=[/.:]|$)", "x", url)
    if "{" in bare or "}" in bare:
        raise ValueError("{member} and {project} are each a whole DNS label or path segment of url")


class MediaSettings(Section):
    max_bytes: int = Field(10 * 1024 * 1024, ge=1)
    extensions: tuple[str, ...] = tuple(
        sorted(
            {
                *DOCUMENT_EXTENSIONS,
                *IMAGE_EXTENSIONS,
                *MEDIA_EXTENSIONS,
                *DATA_EXTENSIONS,
                *ARCHIVE_EXTENSIONS,
                *CODE_EXTENSIONS,
            }
        )
    )
    extensionless: tuple[str, ...] = tuple(
        (
            "Makefile Dockerfile Containerfile LICENSE LICENCE README NOTICE AUTHORS CHANGELOG CONTRIBUTING "
            "Procfile Gemfile Rakefile Jenkinsfile Vagrantfile"
        ).split()
    )
    quota_bytes: int = Field(0, ge=0)
    file_mode: Annotated[str, Field(pattern=r"^0?[0-7]{3}$")] = "0600"
    dir_mode: Annotated[str, Field(pattern=r"^0?[0-7]{3}$")] = "0700"
    idle_timeout: float = Field(30, gt=0)
    min_rate: int = Field(1024, ge=0)
    linger: float = Field(10, ge=0)
    min_free: Annotated[str, Field(pattern=r"^[0-9]{1,2}(\.[0-9]+)?%$")] = "5%"

    @property
    def min_free_ratio(self) -> float:
        """The share of bytes and of inodes that uploads and deliveries leave free, 0 to 1."""
        return float(self.min_free[:-1]) / 100


class DeliverySettings(Section):
    max_bytes: int = Field(64 * 1024 * 1024, ge=1)
    timeout: float = Field(60, gt=0)
    parallel: int = Field(4, ge=1)
    link_ttl: int = Field(604800, ge=0)


class ChatSettings(Section):
    max_turns_per_member: int = Field(4, ge=1)
    max_turns: int = Field(200, ge=1)
    session_queue: int = Field(4, ge=0)
    replay_total: int = Field(256 * 1024 * 1024, ge=0)
    session_headers: tuple[str, ...] = ("X-Session-Id", "X-OpenWebUI-Chat-Id", "X-Conversation-Id")
    max_body_bytes: int = Field(32 * 1024 * 1024, ge=1024)
    upstream_idle: float = Field(120, ge=0)
    connect_timeout: float = Field(10, gt=0)
    replay_keep: float = Field(600, ge=0)
    replay_bytes: int = Field(8 * 1024 * 1024, ge=0)
    silence_timeout: float = Field(600, gt=0)
    turn_timeout: float = Field(0, ge=0)
    grace: float = Field(0.5, gt=0)
    delivery_settle: float = Field(20, gt=0)
    heartbeat: float = Field(10, gt=0)


class ProjectSettings(Section):
    local_bases: tuple[str, ...] = ()
    forbidden: tuple[str, ...] = ()


class LocalFolderSettings(Section):
    max_files: int = Field(500, ge=1)
    max_bytes: int = Field(8 * 1024 * 1024, ge=1)
    max_file_bytes: int = Field(512 * 1024, ge=1)
    max_chunks: int = Field(20000, ge=1)
    max_document_bytes: int = Field(20 * 1024 * 1024, ge=1)
    max_body_bytes: int = Field(256 * 1024 * 1024, ge=1)
    extensions: tuple[str, ...] = tuple(
        sorted({*TEXT_EXTENSIONS, *CODE_EXTENSIONS}),
    )


class RagSettings(Section):
    local: LocalFolderSettings = LocalFolderSettings()


class EmbeddingSettings(Section):
    provider: Literal["bundled", "openai", "none"] = "bundled"
    url: str = ""
    model: str = ""
    dimensions: int = Field(384, ge=1, le=16000)
    api_key_env: str = ""
    batch: int = Field(16, ge=1)


class TokenSettings(Section):
    """One bearer token, by digest. With ``agent`` it is a harness's own; without, a member's."""

    member: str = Field(min_length=1, max_length=256)
    sha256: Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]
    agents: tuple[str, ...] | None = None
    agent: str | None = None
    local: bool = False
    operator: bool = False

    @model_validator(mode="after")
    def _one_kind(self) -> TokenSettings:
        if self.agent is not None and (self.agents is not None or self.local or self.operator):
            raise ValueError("an agent token (agent=…) takes no agents, local or operator")
        if self.member == "*" and self.agent is None:
            raise ValueError('member="*" is for agent tokens')
        return self


def _network(text: str) -> str:
    if text != "unix":
        ip_network(text, strict=False)
    return text


class TrustedHeaderSettings(Section):
    header: str = ""
    sources: tuple[Annotated[str, AfterValidator(_network)], ...] = Field((), alias="from")
    secret_env: str = ""

    def networks(self) -> list[IPv4Network | IPv6Network]:
        return [ip_network(source, strict=False) for source in self.sources if source != "unix"]

    @model_validator(mode="after")
    def _narrow_or_secret(self) -> TrustedHeaderSettings:
        plain = re.fullmatch(r"[A-Za-z0-9-]{0,64}", self.header)
        if self.header.lower() in TAKEN_HEADERS or not plain:
            raise ValueError("header is the name of a header that is free for this, e.g. X-Forwarded-User")
        if self.header and not self.sources:
            raise ValueError("from lists the front door's addresses")
        if self.header and not self.secret_env and any(n.num_addresses > 1 for n in self.networks()):
            raise ValueError("a network wider than one address needs secret_env")
        return self


class OidcSettings(Section):
    issuer: str = ""
    audience: str = ""
    member_claim: str = "sub"


class MyceliumSettings(Section):
    sources: tuple[Annotated[str, AfterValidator(_network)], ...] = Field((), alias="from")
    secret_env: str = ""


class AuthSettings(Section):
    tokens: tuple[TokenSettings, ...] = ()
    trusted_header: TrustedHeaderSettings = TrustedHeaderSettings()
    oidc: OidcSettings = OidcSettings()
    mycelium: MyceliumSettings = MyceliumSettings()


class LimitSettings(Section):
    uploads_per_minute: int = Field(120, ge=0)
    turns_per_minute: int = Field(60, ge=0)
    searches_per_minute: int = Field(600, ge=0)
    reads_per_minute: int = Field(1200, ge=0)
    changes_per_minute: int = Field(240, ge=0)


class MetricsSettings(Section):
    port: int = Field(0, ge=0, le=65535)


class LogSettings(Section):
    level: Literal["debug", "info", "warning", "error"] = "info"
    format: Literal["json", "text"] = "json"


class Settings(BaseSettings):
    """Everything that ``config.toml`` may say."""

    model_config = SettingsConfigDict(
        env_prefix=ENV_PREFIX, env_nested_delimiter="__", extra="forbid", frozen=True, env_ignore_empty=False
    )
    from_file: ClassVar[dict[str, Any]] = {}

    server: ServerSettings = ServerSettings()
    store: StoreSettings = StoreSettings()
    agents: tuple[AgentSettings, ...] = ()
    media: MediaSettings = MediaSettings()
    deliveries: DeliverySettings = DeliverySettings()
    chat: ChatSettings = ChatSettings()
    projects: ProjectSettings = ProjectSettings()
    rag: RagSettings = RagSettings()
    embedding: EmbeddingSettings = EmbeddingSettings()
    auth: AuthSettings = AuthSettings()
    limits: LimitSettings = LimitSettings()
    metrics: MetricsSettings = MetricsSettings()
    log: LogSettings = LogSettings()

    @classmethod
    def settings_customise_sources(
        cls,
        settings_cls: type[BaseSettings],
        init_settings: PydanticBaseSettingsSource,
        env_settings: PydanticBaseSettingsSource,
        dotenv_settings: PydanticBaseSettingsSource,  # noqa: ARG003  # the signature is the library's
        file_secret_settings: PydanticBaseSettingsSource,  # noqa: ARG003
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        # The file's values come in as init arguments: the environment is stronger than they are.
        return env_settings, InitSettingsSource(settings_cls, init_settings())

    @model_validator(mode="after")
    def _trees_apart(self) -> Settings:
        """No agent's tree holds Isthmus's own things, and none lies among them."""
        own = self.store.directory
        for agent in self.agents:
            if not agent.workspaces:
                continue
            tree = Path(agent.workspaces)
            if not tree.is_absolute() or tree == Path("/"):
                raise ValueError(f"agents[{agent.key}].workspaces: give an absolute directory of its own")
            inside = tree.is_relative_to(own) and tree.parent != own / "agents"
            if own.is_relative_to(tree) or inside:
                raise ValueError(
                    f"agents[{agent.key}].workspaces: it overlaps store.data_dir; choose another"
                )
        return self

    @model_validator(mode="after")
    def _references(self) -> Settings:
        keys = [agent.key for agent in self.agents]
        if len(set(keys)) != len(keys):
            raise ValueError("agents: each key once")
        digests = [token.sha256 for token in self.auth.tokens]
        if len(set(digests)) != len(digests):
            raise ValueError("auth.tokens: one token stands for two members; make each its own")
        for token in self.auth.tokens:
            for key in [*(token.agents or ()), *([token.agent] if token.agent else [])]:
                if key not in keys:
                    raise ValueError(f"auth.tokens: there is no agent {key!r}")
        return self

    def agent_workspaces(self, agent: AgentSettings) -> Path:
        """The directory that holds one folder for each member of this agent."""
        return (
            Path(agent.workspaces).absolute()
            if agent.workspaces
            else self.store.directory / "agents" / agent.key
        )


class SettingsError(Exception):
    """The configuration cannot be used; the text names the key and the mend, one problem a line."""


def load_settings(config: Path | None, **overrides: Any) -> Settings:
    """Read the file (None: defaults only) and the environment. Raises SettingsError."""
    values: dict[str, Any] = {}
    if config is not None:
        try:
            values = tomllib.loads(config.read_text(encoding="utf-8-sig"))
        except OSError as error:
            raise SettingsError(f"{config}: {error.strerror}") from error
        except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
            raise SettingsError(f"{config}: {error}") from error
    _refuse_unknown_environment()
    try:
        return Settings(**{**values, **overrides})
    except ValidationError as error:
        raise SettingsError("\n".join(_problem(item) for item in error.errors())) from error
    except ValueError as error:  # pydantic-settings: an environment value that is not JSON
        raise SettingsError(str(error)) from error


def _problem(item: Any) -> str:
    where = ".".join(str(part) for part in item["loc"])
    if item["type"] == "extra_forbidden":
        return f"{where}: there is no such key"
    return f"{where}: {item['msg'].removeprefix('Value error, ')}" if where else item["msg"]


def _refuse_unknown_environment() -> None:
    for name in os.environ:
        if name.startswith(ENV_PREFIX):
            path = name.removeprefix(ENV_PREFIX).lower().split("__")
            if not _is_key(Settings, path):
                raise SettingsError(f"{name}: there is no such key")


def _is_key(model: type[BaseModel], path: list[str]) -> bool:
    for name, field in model.model_fields.items():
        if (field.alias or name) == path[0]:
            if len(path) == 1:
                return True
            inner = field.annotation
            return isinstance(inner, type) and issubclass(inner, BaseModel) and _is_key(inner, path[1:])
    return False
