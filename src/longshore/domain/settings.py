"""Every setting, declared once: its default, its bounds and one sentence for the user.

`config.load` fills these records from flags, environment and `longshore.toml`; every layer takes the record, or a section
of it, as it is.

They are plain frozen classes with class-level defaults. pydantic-settings would cost 300 ms of every start, and twenty
dataclasses 30 ms (ADR 4).
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from ipaddress import ip_network
from typing import TYPE_CHECKING, Any, ClassVar, Final, NamedTuple, NoReturn, Self

if TYPE_CHECKING:
    from longshore.domain.policy.tenant_budgets import Budget

MIB: Final = 1 << 20
SHOWN_SECRET: Final = "********"


class Secret:
    """Text that never shows itself: not in a log, an error, a dump or a repr."""

    __slots__ = ("_text",)

    def __init__(self, text: str) -> None:
        self._text = text

    def reveal(self) -> str:
        """Return the text to the one who must send it."""
        return self._text

    def __repr__(self) -> str:
        return f"Secret({SHOWN_SECRET!r})"

    def __str__(self) -> str:
        return SHOWN_SECRET

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Secret) and other._text == self._text

    def __hash__(self) -> int:
        return hash(("Secret", self._text))


def revealed(secret: Secret | None) -> str | None:
    """Return a secret's text, or None where there is none."""
    return secret.reveal() if secret is not None else None


class Key(NamedTuple):
    """The metadata of one setting: default, description, bounds and type."""

    default: Any
    doc: str
    least: float | None = None
    most: float | None = None
    annotation: str = ""


def key(default: Any, doc: str, *, least: float | None = None, most: float | None = None) -> Any:
    """Declare a setting."""
    return Key(default, doc, least, most)


class Section:
    """A frozen record of settings. What is not given is the default, which lies on the class."""

    KEYS: ClassVar[dict[str, Key]] = {}

    def __init_subclass__(cls) -> None:
        cls.KEYS = {}
        for name, annotation in cls.__annotations__.items():
            declared = cls.__dict__.get(name)
            if isinstance(declared, Key):
                cls.KEYS[name] = declared._replace(annotation=str(annotation))
                setattr(cls, name, declared.default)

    def __init__(self, **given: Any) -> None:
        for name in given:
            if name not in self.__class__.__annotations__:
                raise TypeError(f"{self.__class__.__name__} has no {name}")
        self.__dict__.update(given)
        self.check()

    def check(self) -> None:
        """Raise ValueError if the values do not go together."""

    def __setattr__(self, name: str, value: object) -> NoReturn:
        raise AttributeError(f"{self.__class__.__name__} is frozen")

    def values(self) -> dict[str, Any]:
        """Return every setting with its value."""
        return {name: getattr(self, name) for name in self.KEYS}

    def replaced(self, **changes: Any) -> Self:
        """Return a copy with other values."""
        return self.__class__(**{**self.__dict__, **changes})

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Section) and self.__class__ is other.__class__ and self.values() == other.values()

    def __hash__(self) -> int:
        return hash((self.__class__, repr(self)))

    def __repr__(self) -> str:
        given = ", ".join(f"{name}={value!r}" for name, value in self.values().items())
        return f"{self.__class__.__name__}({given})"


class NetworkSettings(Section):
    """Which addresses may be connected to, and how requests identify themselves."""

    allow: tuple[str, ...] = key((), "CIDR ranges that may be reached although they are not public")
    proxy: Secret | None = key(None, "proxy URL for all transfers; the environment's proxies are not used")
    user_agent: str = key("", "what we call ourselves; empty means `longshore/VERSION`")
    ca_file: str | None = key(None, "PEM file of certificate authorities instead of the system's")
    netrc: str | None = key(None, "netrc file with credentials; none is read unless named")
    cookies: str | None = key(
        None, "cookie file in Netscape's format; each cookie is sent to its own domain, path and scheme only"
    )
    known_hosts: str | None = key(None, "keys of SFTP servers instead of ~/.ssh/known_hosts")
    max_refusals: int = key(
        20, "refusals in a row for which one setting is to blame, after which a run stops; 0 = never", least=0
    )
    host_keys: str = key("strict", "SFTP servers whose key is unknown: `strict` refuses, `accept_new` learns it")

    def check(self) -> None:
        """Raise if an entry is not a CIDR range."""
        import ipaddress

        for cidr in self.allow:
            ipaddress.ip_network(cidr, strict=False)


class TransferSettings(Section):
    """How bytes are fetched."""

    concurrency: int = key(32, "transfers at the same time in one worker", least=1, most=4096)
    max_bytes: int = key(1 << 40, "largest body that is taken (reason `too_large`)", least=1)
    deadline_s: float = key(0.0, "longest time for one transfer (reason `deadline`); 0 = no limit", least=0)
    connect_s: float = key(30.0, "longest time for name, connection and TLS handshake", least=0.001)
    stall_s: float = key(60.0, "longest time without a byte of the body (reason `too_slow`)", least=0.001)
    min_speed_bytes_s: float = key(0.0, "slowest average (reason `too_slow`); 0 = no limit", least=0)
    speed_window_s: float = key(30.0, "time over which the average is taken", least=0.001)
    max_rate: str = key(
        "",
        "bytes per second that all transfers receive together, such as `2M` (k, M, G are powers of 1024), or by local time "
        "`500k 08:00-18:00, 0 otherwise`; empty or 0 = no limit",
    )
    max_rate_shares: int = key(
        1, "processes that share max_rate and a short queue in equal parts; --workers sets it", least=1
    )
    chunk_bytes: int = key(256 * 1024, "bytes handed over at once", least=4096, most=1 << 28)
    segments: int = key(
        1,
        "ranges of one large body fetched at the same time; further connections stay within hosts.concurrency per process",
        least=1,
        most=64,
    )
    decode: str = key(
        "refuse",
        "a body that the server encodes although identity was asked for: `refuse` (reason `content_encoding`), or "
        "`store_decoded` (gzip and deflate; the hash of the encoded bytes is recorded, too)",
    )
    small_bytes: int = key(256 * 1024, "a body up to this size is kept in memory until it is published", least=0)
    max_redirects: int = key(10, "redirect hops before `redirect_loop`", least=0, most=100)
    max_header_bytes: int = key(128 * 1024, "largest header block (reason `header_too_large`)", least=1024)
    http2: bool = key(True, "speak HTTP/2 where the server does")
    drain_s: float = key(
        3.0, "how long a first signal lets transfers end; what is longer is put down and resumed", least=0
    )

    def check(self) -> None:
        """Raise if the rate or its timetable is not understood, or the policy is unknown."""
        if self.decode not in ("refuse", "store_decoded"):
            raise ValueError(f"decode is `refuse` or `store_decoded`, not {self.decode!r}")
        if self.max_rate:
            from longshore.domain.policy.max_rate import parse_max_rate

            parse_max_rate(self.max_rate)


class CredentialSettings(Section):
    """How to be known at one host. A bare name serves encrypted schemes only."""

    username: str | None = key(None, "user")
    password: Secret | None = key(None, "password")
    token: Secret | None = key(None, "bearer token")
    headers: Mapping[str, str] = key({}, "further headers, such as an API key")
    key_file: str | None = key(None, "private key for SFTP")

    def __repr__(self) -> str:
        return f"CredentialSettings({SHOWN_SECRET})"


class CredentialsSettings(Section):
    """Credentials by host; sent to that host only. Each user name or token gets its own jobs and results."""

    named: Mapping[str, CredentialSettings] = key({}, 'tables of single hosts: `[credentials."example.org"]`')


class RetrySettings(Section):
    """When a failed attempt is made again."""

    max_attempts: int = key(5, "attempts before a transient reason is final", least=1)
    base_s: float = key(1.0, "ceiling of the first delay; doubles each time, full jitter", least=0)
    cap_s: float = key(3600.0, "largest ceiling", least=0)
    max_claims: int = key(100, "claims past LEASED before a poison job is given up", least=1)


class HostSettings(Section):
    """What one host may be asked, as configured; None means the general value."""

    concurrency: int | None = key(None, "connections to this host at the same time", least=1)
    rate_per_s: float | None = key(None, "requests per second to this host; 0 = no limit", least=0)


class HostsSettings(Section):
    """How politely each host is treated, by all workers together."""

    concurrency: int = key(8, "connections to one host at the same time", least=1)
    rate_per_s: float = key(0.0, "requests per second to one host; 0 = no limit outside profiles", least=0)
    breaker_failures: int = key(
        20,
        "failures in a row before a host rests (truncation does not count); two that waited for a connection are enough",
        least=1,
    )
    breaker_cooldown_s: float = key(30.0, "how long it rests then", least=0)
    give_up_s: float = key(
        60.0,
        "a resting host that answered nothing for so long fails the jobs that wait for it, one that gave nothing but faults "
        "those that were asked for; 0 = never",
        least=0,
    )
    profiles: bool = key(True, "use the shipped profiles of well-known hosts")
    named: Mapping[str, HostSettings] = key({}, 'tables of single hosts: `[hosts."example.org"]`')


class ResumeSettings(Section):
    """When a part is continued."""

    prefix_check_bytes: int = key(
        65_536, "overlap that is fetched again and compared where no validator helps", least=0
    )
    allow_without_validators: bool = key(False, "continue after an overlap check where the server names no version")


class IoSettings(Section):
    """How parts are written. fsync is not a setting."""

    preallocate: bool = key(True, "reserve the blocks of a large part before its bytes come")
    preallocate_min_size_bytes: int = key(8 * MIB, "from which size", least=0)


class ShardSettings(Section):
    """How blobs are spread over directories."""

    width: int = key(2, "hexadecimal digits in the directory's name", least=1, most=4)


class DedupeSettings(Section):
    """When bytes that are held are not fetched again."""

    reuse: bool = key(True, "use stored bytes of the same content instead of fetching them again")
    hardlink: bool = key(
        True, "store equal bytes of one tenant's projects once, by hard link; where that is impossible, by copy"
    )
    revalidate: str = key(
        "always", "ask the server before another job's bytes are used: `always`, `never`, or an age in seconds"
    )

    def check(self) -> None:
        """Raise if the policy is neither a keyword nor an age."""
        if not self.revalidate_after_s >= 0:
            raise ValueError(f"revalidate is `always`, `never` or an age in seconds, not {self.revalidate!r}")

    @property
    def revalidate_after_s(self) -> float:
        """Return the age from which the server is asked: 0 for `always`, infinity for `never`."""
        words = {"always": 0.0, "never": math.inf}
        try:
            return words[self.revalidate] if self.revalidate in words else float(self.revalidate)
        except ValueError:
            return math.nan


class VerifySettings(Section):
    """What is checked before bytes are published."""

    sniff: bool = key(True, "look at the first bytes: an HTML page instead of a file is a failure")


class ReconcileSettings(Section):
    """When rows, files, parts and intents are compared."""

    interval_s: float = key(3600.0, "how often a worker compares them", least=1)
    start_s: float = key(0.2, "how long a worker looks for lost blobs when it starts; 0 = not", least=0)
    stale_part_s: float = key(3600.0, "age from which a part of a job that is over or gone is removed", least=0)


class RetentionSettings(Section):
    """How long history is kept. Workers purge once a day; `longshore purge` purges at once."""

    days: float = key(
        90.0, "jobs over for longer, that nothing points to, are archived and forgotten; 0 = never", least=0
    )
    audit_days: float = key(365.0, "age from which lines of the audit log go; 0 = never", least=0)
    artifact_days: Mapping[str, float] = key(
        {}, "age from which artifacts of a type are deleted with their bytes, by artifact type: `raw_upload = 30`"
    )
    request_key_days: float = key(7.0, "how long an Idempotency-Key is remembered; 0 = for ever", least=0)


class QuotaSettings(Section):
    """How much room may be used."""

    free_bytes_min: int = key(8 * MIB, "room on the store's disk that is never used", least=0)
    margin_factor: float = key(1.05, "how much more than the declared size is reserved", least=1)
    tenant_bytes: int = key(0, "budget of one tenant: bytes held; 0 = no limit", least=0)
    tenant_items: int = key(0, "budget of one tenant: artifacts held and jobs that are not over; 0 = no limit", least=0)
    tenant_jobs: int = key(0, "budget of one tenant: jobs at the same time, by all workers; 0 = no limit", least=0)

    def budget(self) -> Budget:
        """Return the budget of tenants of which the ledger says nothing."""
        from longshore.domain.policy.tenant_budgets import Budget

        return Budget(self.tenant_bytes, self.tenant_items, self.tenant_jobs)


class LeaseSettings(Section):
    """How long a worker may be silent."""

    ttl_s: float = key(120.0, "how long a lease lasts", least=0.1)
    renew_s: float = key(40.0, "how often it is renewed", least=0.05)

    @property
    def renew_every_s(self) -> float:
        """Return how often a lease is renewed: at least three times before it expires."""
        return min(self.renew_s, self.ttl_s / 3)


class QbittorrentSettings(Section):
    """The torrent client."""

    url: str = key("http://127.0.0.1:8080", "address of its Web API")
    username: str | None = key(None, "its user")
    password: Secret | None = key(None, "its password")
    api_key: Secret | None = key(None, "its API key, instead of user and password")
    category: str = key("longshore-{media_type}", "category that our torrents get")
    save_path: str = key("", "directory on the client's machine; empty means the client's default")
    poll_s: float = key(15.0, "how often its state is read", least=0.01)
    batch: int = key(100, "jobs in one cycle", least=1)
    not_found_grace_s: float = key(60.0, "how long a torrent may be missing while the client answers", least=0)
    enqueue_attempts: int = key(5, "attempts to hand a torrent over", least=1)
    path_map: Mapping[str, str] = key({}, "directories of the client and where they are seen here")
    error_grace_s: float = key(300.0, "how long the client may report an error before it counts", least=0)
    stall_s: float = key(0.0, "how long a torrent may make no progress; 0 = for ever", least=0)
    metadata_s: float = key(0.0, "how long a magnet may wait for its metadata; 0 = for ever", least=0)
    hardlink: bool = key(True, "take finished files by hard link where that is possible")
    adopt_foreign: bool = key(
        False, "use torrents that the client already has, also those that no job of the same tenant added"
    )
    max_torrent_bytes: int = key(10 * MIB, "largest .torrent file that is read", least=1024)
    timeout_s: float = key(20.0, "longest time for one answer of the client", least=0.001)

    def category_of(self, media_type: str) -> str:
        """Return the client's category for a media type."""
        return self.category.replace("{media_type}", re.sub(r"[^\w.-]+", "_", media_type))


class S3Settings(Section):
    """The object store; what is not set here comes from the usual AWS_* variables."""

    endpoint: str | None = key(None, "address of a store that is not Amazon's (AWS_ENDPOINT_URL)")
    region: str | None = key(None, "region (AWS_REGION, AWS_DEFAULT_REGION)")
    access_key_id: str | None = key(None, "key id (AWS_ACCESS_KEY_ID)")
    secret_access_key: Secret | None = key(None, "secret (AWS_SECRET_ACCESS_KEY)")
    session_token: Secret | None = key(None, "session token (AWS_SESSION_TOKEN)")
    part_bytes: int = key(16 * MIB, "size of one piece of a multipart upload", least=5 * MIB)


class ServeSettings(Section):
    """The service."""

    host: str = key("127.0.0.1", "address it listens on")
    port: int = key(8642, "port it listens on", least=0, most=65_535)
    names: tuple[str, ...] = key(
        (), "names it may be asked under besides loopback's own; none: any name, but on loopback only `localhost`"
    )
    connections: int = key(2000, "open connections; beyond them the oldest idle one is closed", least=8)
    connections_per_address: int = key(1000, "the same for one address", least=4)
    head_timeout_s: float = key(10.0, "longest time for the head of a request, or a body without a token", least=0.01)
    min_upload_bytes_s: float = key(100.0, "slowest body of a request, measured over 10 seconds", least=0)
    requests_per_token: int = key(200, "requests of one token and its sessions at the same time", least=1)
    waits_per_token: int = key(64, "those of them that wait for a job (`?wait=`)", least=1)
    tls_certificate: str | None = key(None, "PEM file with its certificate chain; it then speaks HTTPS only")
    tls_key: str | None = key(None, "PEM file with the certificate's key; none: it is in the certificate's file")
    trusted_proxies: tuple[str, ...] = key(
        (), "addresses (CIDRs) of proxies whose `X-Forwarded-For` and `X-Forwarded-Proto` are believed"
    )
    session_idle_s: float = key(
        7200.0, "how long a dashboard session may be unused before it ends; 0 = 12 hours", least=0
    )
    audit_reads: bool = key(True, "write to the audit log who reads the bytes of which artifact")
    log_level: str = key("info", "least level that it logs: `debug`, `info`, `warning` or `error`")
    log_format: str = key("text", "how it logs: `text`, or `json` lines")

    def check(self) -> None:
        """Raise ValueError for a level or a format that does not exist, a key without a certificate, or a bad address."""
        if self.tls_key and not self.tls_certificate:
            raise ValueError("tls_key needs tls_certificate")
        for text in self.trusted_proxies:
            ip_network(text, strict=False)
        if self.log_level not in ("debug", "info", "warning", "error"):
            raise ValueError(f"log_level is debug, info, warning or error, not {self.log_level!r}")
        if self.log_format not in ("text", "json"):
            raise ValueError(f"log_format is text or json, not {self.log_format!r}")


class Settings(Section):
    """The whole configuration of one depot. `origins` holds the source of each value that is not a default."""

    depot: str = key("", "directory of the depot")
    ledger: str = key("", "ledger: a path or postgresql://…; empty means `ledger.db` in the depot")
    store: str = key("", "store: a path, s3://… or postgresql://…; empty means `store` in the depot")
    tenant: str = key("default", "tenant of the command line")
    project: str = key("default", "project of the command line")
    offline: bool = key(False, "never open a connection; jobs whose bytes are not stored wait (reason `offline`)")
    network: NetworkSettings = NetworkSettings()
    transfer: TransferSettings = TransferSettings()
    credentials: CredentialsSettings = CredentialsSettings()
    retry: RetrySettings = RetrySettings()
    hosts: HostsSettings = HostsSettings()
    resume: ResumeSettings = ResumeSettings()
    io: IoSettings = IoSettings()
    shard: ShardSettings = ShardSettings()
    dedupe: DedupeSettings = DedupeSettings()
    verify: VerifySettings = VerifySettings()
    reconcile: ReconcileSettings = ReconcileSettings()
    retention: RetentionSettings = RetentionSettings()
    quota: QuotaSettings = QuotaSettings()
    lease: LeaseSettings = LeaseSettings()
    qbittorrent: QbittorrentSettings = QbittorrentSettings()
    s3: S3Settings = S3Settings()
    serve: ServeSettings = ServeSettings()

    origins: Mapping[str, str] = {}

    def values(self) -> dict[str, Any]:
        """Return every setting at the top and every section; not where they came from."""
        return {name: getattr(self, name) for name in self.__annotations__ if name != "origins"}

    def __repr__(self) -> str:
        return f"Settings({self.depot!r})"  # not all of it: ledger and store may carry a password
