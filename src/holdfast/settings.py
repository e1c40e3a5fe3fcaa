"""Every setting in one typed object. Strongest first: code, `HOLDFAST_*`, older names, a file, the default."""

from __future__ import annotations

import dataclasses
import math
import os
import re
from collections.abc import Mapping
from ipaddress import IPv4Network, IPv6Network, ip_network
from pathlib import Path
from typing import Any

from holdfast.database_url import parse_database_url
from holdfast.errors import ConfigError
from holdfast.redact import checked_pattern, redact
from holdfast.sealing import RIGHT, checked_keys
from holdfast.setting_rules import Rule as _Rule
from holdfast.setting_rules import also_bare as _also_bare
from holdfast.setting_rules import count as _count
from holdfast.setting_rules import days as _days
from holdfast.setting_rules import one_of as _one_of
from holdfast.setting_rules import seconds as _seconds
from holdfast.setting_rules import setting as _setting
from holdfast.setting_rules import switch as _switch
from holdfast.setting_rules import text as _text

_STAGE_FACTOR = re.compile(r"HOLDFAST_([A-Z0-9_]+)_SLA_FACTOR")
_OLDER_STAGE_FACTORS = {"CLIP_SLA_FACTOR": "clip", "ASR_SLA_FACTOR": "asr", "BURNIN_SLA_FACTOR": "burnin"}


_CLAIM = "the place of a claim that only the issuer can set, for example app_metadata.organization"
_CLAIM_PATTERN = r"(?!(raw_)?user_meta(_)?data)[^.\s]+(\.[^.\s]+)*"

_FACTOR = _Rule(("HOLDFAST_SLA_FACTOR",), "a number above 0, for example 6", most=1_000_000.0, above_least=True)
_API_RATE = _Rule(
    ("HOLDFAST_API_RATE",), "a whole number of requests a minute, 0 for no limit, for example 1200", most=2**31 - 1, whole=True
)
_POOL = _Rule(("HOLDFAST_MACHINE_POOL",), "a whole number of 0 or more, for example 1", most=10_000, whole=True)
_RATE = _Rule(("HOLDFAST_MACHINE_RATE",), "money per second, 0 or more, for example 0.0002153", most=1_000_000.0)
_DATABASE = _Rule(_also_bare("DATABASE_URL"), "a database URL", words=lambda label, value: _checked_url(label, value))
_LISTEN = _Rule(
    ("HOLDFAST_LISTEN_URL",),
    "a PostgreSQL URL that goes past the pooler",
    optional=True,
    words=lambda label, value: _checked_url(label, value),
)
_PATTERNS = _Rule(
    ("HOLDFAST_REDACT",),
    "a list of regular expressions (in the environment: one on each line)",
    words=lambda label, value: _checked_patterns(label, value),
)
_NETWORKS = _Rule(
    ("HOLDFAST_WEBHOOK_NETWORKS",),
    "a list of networks (in the environment: separated by commas), for example 10.0.0.0/8",
    words=lambda label, value: _checked_networks(label, value),
)

_ENCRYPTION = _Rule(("HOLDFAST_ENCRYPTION_KEYS",), RIGHT, words=checked_keys)


_ADOPTED = _Rule((), "a list of AdoptedTable(...)", words=lambda label, value: _checked_adopted(label, value))


@dataclasses.dataclass(frozen=True, kw_only=True)
class Settings:
    """Seconds everywhere, fractions allowed. Made by `load_settings`."""

    database_url: str = _setting("sqlite:///holdfast.db", _DATABASE, shown=False)
    listen_url: str | None = _setting(None, _LISTEN, shown=False)
    """Past the pooler, where there is one between us and PostgreSQL."""
    lease: float = _seconds(300.0, *_also_bare("DEFAULT_LEASE_SEC", "QUEUE_VISIBILITY_SEC"))
    heartbeat: float = _seconds(15.0, *_also_bare("HEARTBEAT_SEC"))
    max_attempts: int = _count(3, *_also_bare("JOB_MAX_ATTEMPTS", "QUEUE_MAX_ATTEMPTS"))
    backoff_base: float = _seconds(5.0, *_also_bare("QUEUE_RETRY_BACKOFF_MS_BASE"), zero=True, milliseconds_in_env=True)
    backoff_max: float = _seconds(900.0, *_also_bare("QUEUE_RETRY_BACKOFF_MS_MAX"), zero=True, milliseconds_in_env=True)
    reaper_interval: float = _seconds(60.0, *_also_bare("REAPER_INTERVAL_SEC"))
    grace: float = _seconds(30.0, "HOLDFAST_GRACE_SEC", zero=True)
    run_limit: float = _seconds(14_400.0, "HOLDFAST_RUN_LIMIT_SEC")
    deadline_grace: float = _seconds(30.0, "HOLDFAST_DEADLINE_GRACE_SEC", zero=True)
    sla_factor: float = _setting(6.0, _FACTOR)
    sla_factors: Mapping[str, float] = dataclasses.field(default_factory=lambda: {"clip": 6.0, "asr": 12.0, "burnin": 8.0})
    """Stage -> factor, for stages whose factor is not `sla_factor`."""
    watchdog: float = _seconds(60.0, "HOLDFAST_WATCHDOG_SEC", zero=True)
    """A process of `holdfast` that is frozen for so long ends, with the stacks of its threads; 0 is off."""
    poll_busy: float = _seconds(1.0, "HOLDFAST_POLL_BUSY_SEC")
    poll_idle: float = _seconds(15.0, "HOLDFAST_POLL_IDLE_SEC")
    exit_when_idle: float | None = _seconds(None, "HOLDFAST_EXIT_WHEN_IDLE_SEC", zero=True)
    payload_bytes_max: int = _count(1_048_576, "HOLDFAST_PAYLOAD_BYTES_MAX")
    result_bytes_max: int = _count(1_048_576, "HOLDFAST_RESULT_BYTES_MAX")
    retention_finished: float = _days(14.0, "HOLDFAST_RETENTION_FINISHED_DAYS")
    retention_failed: float = _days(90.0, "HOLDFAST_RETENTION_FAILED_DAYS")
    retention_events: float = _days(90.0, "HOLDFAST_RETENTION_EVENTS_DAYS")
    retention_logs: float = _days(90.0, "HOLDFAST_RETENTION_LOGS_DAYS")
    retention_workers: float = _days(1.0, "HOLDFAST_RETENTION_WORKERS_DAYS")
    log_line_bytes_max: int = _count(16_384, "HOLDFAST_LOG_LINE_BYTES_MAX")
    log_metadata_bytes_max: int = _count(65_536, "HOLDFAST_LOG_METADATA_BYTES_MAX")
    log_lines_max: int = _count(100_000, "HOLDFAST_LOG_LINES_MAX")
    redact: tuple[str | re.Pattern[str], ...] = _setting((), _PATTERNS)
    """What these match is redacted too, beside what Holdfast knows; in the whole process."""
    jwt_secret: str | None = _text(
        "HOLDFAST_JWT_SECRET",
        right="a secret of 32 characters or more, as whoever signs the tokens has it",
        chars_min=32,
        secret=True,
    )
    """Tokens are signed with HS256."""
    jwks_url: str | None = _text(
        "HOLDFAST_JWKS_URL",
        right="the address of the public keys that sign tokens, beginning with https:// (http:// for this machine only)",
        pattern=r"https://[^\s@]+|http://(localhost|127\.\d+\.\d+\.\d+|\[::1\])([:/][^\s@]*)?",
    )
    jwt_audience: str | None = _text("HOLDFAST_JWT_AUDIENCE", right="what tokens say in `aud`, for example authenticated")
    jwt_issuer: str | None = _text("HOLDFAST_JWT_ISSUER", right="what tokens say in `iss`")
    jwt_tenant_claim: str | None = _text("HOLDFAST_JWT_TENANT_CLAIM", right=_CLAIM, pattern=_CLAIM_PATTERN)
    """Where tokens name the tenant, and below the role; else the members that Holdfast knows count."""
    jwt_role_claim: str | None = _text("HOLDFAST_JWT_ROLE_CLAIM", right=_CLAIM, pattern=_CLAIM_PATTERN)
    jwt_service_role: bool = _switch("HOLDFAST_JWT_SERVICE_ROLE")
    """Whether a token whose `role` is `service_role` stands above all tenants."""
    request_limit: float = _seconds(30.0, "HOLDFAST_REQUEST_LIMIT_SEC")
    """How long the HTTP API takes for an answer at the most; open streams do not count."""
    stream_check: float = _seconds(15.0, "HOLDFAST_STREAM_CHECK_SEC")
    """How often it is asked again whether whoever watches a stream still may."""
    idempotency_kept: float = _seconds(86_400.0, "HOLDFAST_IDEMPOTENCY_KEPT_SEC")
    idempotency_lease: float = _seconds(30.0, "HOLDFAST_IDEMPOTENCY_LEASE_SEC")
    api_rate: int = _setting(1_200, _API_RATE)
    log_format: str = _one_of("console", "HOLDFAST_LOG_FORMAT", "console", "json")
    """How processes write their log to standard error."""
    metrics_public: bool = _switch("HOLDFAST_METRICS_PUBLIC")
    """Whether anybody may read /metrics; else the service role and this host may."""
    fly_regions: str | None = _text("HOLDFAST_FLY_REGIONS", right="regions, as iad,ewr", pattern=r"[a-z]{2,4}(,[a-z]{2,4})*")
    fly_size: str | None = _text("HOLDFAST_FLY_SIZE", right="a size, as performance-8x", pattern=r"(shared|performance)-\d+x")
    fly_memory_mb: int = _count(65_536, "HOLDFAST_FLY_MEMORY_MB")
    fly_api_url: str | None = _text("HOLDFAST_FLY_API_URL", right="an address beginning with http", pattern=r"https?://\S+")
    """Else the public one; inside Fly's private network http://_api.internal:4280/v1 is nearer."""
    kubernetes_namespace: str | None = _text("HOLDFAST_KUBERNETES_NAMESPACE", right="the namespace for the Jobs of machines")
    kubernetes_secret: str | None = _text("HOLDFAST_KUBERNETES_SECRET", right="a Secret that holds the environment of machines")
    kubernetes_cpu: str | None = _text("HOLDFAST_KUBERNETES_CPU", right="processors for a machine, for example 8")
    kubernetes_memory: str | None = _text("HOLDFAST_KUBERNETES_MEMORY", right="memory for a machine, for example 64Gi")
    internal_api_key: str | None = _text(
        *_also_bare("INTERNAL_API_KEY"), right="a secret of 16 characters or more", chars_min=16, secret=True
    )
    """What an outside cron sends as X-Internal-Api-Key to the recovery endpoint."""
    qstash_current_signing_key: str | None = _text(
        *_also_bare("QSTASH_CURRENT_SIGNING_KEY"), right="the current signing key of QStash", secret=True
    )
    qstash_next_signing_key: str | None = _text(
        *_also_bare("QSTASH_NEXT_SIGNING_KEY"), right="the next signing key of QStash", secret=True
    )
    webhooks: bool = _switch("HOLDFAST_WEBHOOKS")
    """Whether this app sends webhooks: then its workers serve the queue `webhooks` too."""
    webhook_networks: tuple[IPv4Network | IPv6Network, ...] = _setting((), _NETWORKS)
    """Where webhooks may go although it is not public, and without https."""
    max_lifetime: float | None = _seconds(None, "HOLDFAST_MAX_LIFETIME_SEC")
    """How long a worker process lives at the most; it drains in time."""
    machine_provider: str = _one_of("none", "HOLDFAST_MACHINE_PROVIDER", "none", "local", "fly", "kubernetes")
    """Who starts machines for work that nobody serves, and below: how many, and when."""
    machine_pool: int = _setting(1, _POOL)
    machine_max: int = _count(5, "HOLDFAST_MACHINE_MAX", *_also_bare("FLY_MAX_BURST_MACHINES"))
    """Machines at a time, pool and burst together."""
    machine_concurrency: int = _count(10, "HOLDFAST_MACHINE_CONCURRENCY")
    machine_idle: float = _seconds(60.0, "HOLDFAST_MACHINE_IDLE_SEC", zero=True)
    machine_lifetime: float = _seconds(14_400.0, "HOLDFAST_MACHINE_LIFETIME_SEC")
    machine_boot: float = _seconds(60.0, "HOLDFAST_MACHINE_BOOT_SEC")
    machine_wait: float = _seconds(5.0, "HOLDFAST_MACHINE_WAIT_SEC", zero=True)
    machine_rate: float = _setting(0.000_215_3, _RATE)
    """Money for one second of one machine; Fly's performance-8x with 64 GB, in dollars."""
    machine_app: str | None = _text("HOLDFAST_APP", right="where local machines find the tasks, for example tasks:hf")
    machine_folder: str | None = _text("HOLDFAST_MACHINE_FOLDER", right="a folder for what local machines are known by")
    machine_image: str | None = _text("HOLDFAST_MACHINE_IMAGE", right="the image that machines run")
    fly_api_token: str | None = _text(*_also_bare("FLY_API_TOKEN"), right="a deploy token of the Fly app", secret=True)
    fly_app: str | None = _text("HOLDFAST_FLY_APP", *_also_bare("FLY_EXTRACTION_APP"), right="the name of a Fly app")

    adopted: tuple[Any, ...] = _setting((), _ADOPTED)
    """Of `holdfast.adopt.AdoptedTable`: the reaper looks after them, beside those that `holdfast adopt` has stored."""
    encryption_keys: tuple[bytes, ...] = _setting((), _ENCRYPTION, shown=False)
    """Seal arguments, results, results of steps and stored secrets in the database: the first one seals, all of them open."""
    origins: Mapping[str, str] = dataclasses.field(default_factory=dict, repr=False)

    def origin(self, field: str) -> str:
        """Where a value came from: `default`, the variable's name, `code`, or the file's name."""
        if field not in _FIELDS:
            raise ConfigError(_unknown(field))
        return self.origins.get(field, "default")


_FIELDS: dict[str, _Rule | None] = {f.name: f.metadata.get("rule") for f in dataclasses.fields(Settings) if f.name != "origins"}


def load_settings(url: str | None = None, /, **overrides: Any) -> Settings:
    """Gather every setting from its strongest source, and refuse by name what cannot work."""
    if url is not None:
        if "database_url" in overrides:
            raise ConfigError("the database URL was given twice, first and as database_url: give it once.")
        overrides["database_url"] = url
    file_name, from_file = _read_file()
    for name in (*overrides, *from_file):
        if name not in _FIELDS:
            raise ConfigError(_unknown(name) if name in overrides else f"{file_name}: {_unknown(name)}")

    values: dict[str, Any] = {}
    origins: dict[str, str] = {}
    for name, rule in _FIELDS.items():
        if rule is None:
            continue
        variable = next((v for v in rule.env if os.environ.get(v, "").strip()), None)
        if name in overrides:
            values[name], origins[name] = _checked(name, overrides[name], rule), "code"
        elif variable is not None:
            values[name], origins[name] = _from_environment(variable, rule), variable
        elif name in from_file:
            values[name], origins[name] = _checked(f"{name} in {file_name}", from_file[name], rule), file_name
    values["sla_factors"], origins["sla_factors"] = _stage_factors(overrides, file_name, from_file)
    if "heartbeat" not in values and "lease" in values:
        values["heartbeat"] = min(Settings.heartbeat, values["lease"] / 3)
    settings = Settings(**values, origins=origins)
    _check_heartbeat(settings)
    _check_tokens(settings)
    return settings


def _read_file() -> tuple[str, dict[str, Any]]:
    for file_name, table in (("holdfast.toml", ()), ("pyproject.toml", ("tool", "holdfast"))):
        try:
            text = Path(file_name).read_text(encoding="utf-8")
            import tomllib  # late: many programs have no such file

            found: Any = tomllib.loads(text)
        except (FileNotFoundError, NotADirectoryError):
            continue
        except (OSError, ValueError) as error:
            raise ConfigError(f"{file_name} in the working directory cannot be read: {redact(str(error))}.") from None
        for key in table:
            found = found.get(key, {}) if isinstance(found, dict) else {}
        if not isinstance(found, dict):
            raise ConfigError(f"{'.'.join(table)} in {file_name} must be a table of settings, for example lease = 300.")
        if isinstance(found.get("app"), str):
            found = {name: value for name, value in found.items() if name != "app"}  # for the command line: where the tasks are
        if found or file_name == "holdfast.toml":
            return file_name, found
    return "", {}


def _from_environment(variable: str, rule: _Rule) -> Any:
    text = os.environ[variable].strip()
    if rule.words is not None:
        return rule.words(variable, text)
    try:
        value: float = int(text) if rule.whole else float(text) * rule.env_scale
    except ValueError:
        raise ConfigError(_wrong(variable, text, rule)) from None
    return _checked(variable, value, rule)


def _checked(label: str, value: Any, rule: _Rule) -> Any:
    if value is None and rule.optional:
        return None
    if rule.words is not None:
        return rule.words(label, value)
    wanted = int if rule.whole else (int, float)
    if not isinstance(value, wanted) or isinstance(value, bool):
        raise ConfigError(_wrong(label, value, rule))
    too_small = value <= rule.least if rule.above_least else value < rule.least
    if too_small or value > rule.most or math.isnan(value):
        raise ConfigError(_wrong(label, value, rule))
    return value if rule.whole else float(value)


def _checked_url(label: str, value: Any) -> str:
    if not isinstance(value, str):
        raise ConfigError(f"{label} must be text such as sqlite:///jobs.db, not {type(value).__name__}.")
    try:
        parse_database_url(value)
    except ConfigError as error:
        raise ConfigError(f"{label}: {error}") from None
    return value


def _checked_patterns(label: str, value: Any) -> tuple[str | re.Pattern[str], ...]:
    patterns = value.splitlines() if isinstance(value, str) and label in _PATTERNS.env else value
    if not isinstance(patterns, list | tuple) or not all(isinstance(one, str | re.Pattern) for one in patterns):
        raise ConfigError(_wrong(label, value, _PATTERNS))
    for pattern in patterns:
        try:
            checked_pattern(pattern)
        except ConfigError as error:
            raise ConfigError(f"{label}: {error}") from None
    return tuple(patterns)


def _checked_networks(label: str, value: Any) -> tuple[IPv4Network | IPv6Network, ...]:
    given = [one.strip() for one in value.split(",") if one.strip()] if isinstance(value, str) else value
    try:
        # str(): a number would be taken for an address, and True for 0.0.0.1.
        return tuple(ip_network(str(one)) for one in given)
    except (TypeError, ValueError):
        raise ConfigError(_wrong(label, value, _NETWORKS)) from None


def _checked_adopted(label: str, value: Any) -> tuple[Any, ...]:
    if not isinstance(value, list | tuple) or not all(hasattr(one, "on_requeued") for one in value):
        raise ConfigError(f"{label} must be {_ADOPTED.right}, in code; the command `holdfast adopt` needs no setting.")
    return tuple(value)


def _wrong(label: str, value: object, rule: _Rule) -> str:
    limit = f", at most {rule.most:.0f}" if isinstance(value, int | float) and value > rule.most else ""
    text = redact(repr(value))
    return f"{label} is {text if len(text) <= 80 else text[:80] + '…'}: it must be {rule.right}{limit}."


def _unknown(name: str) -> str:
    import difflib

    near = difflib.get_close_matches(name, _FIELDS, n=1)
    hint = f"did you mean {near[0]!r}?" if near else f"the settings are {', '.join(_FIELDS)}."
    return f"there is no setting {redact(name)!r}; {hint}"


def _stage_factors(overrides: Mapping[str, Any], file_name: str, from_file: Mapping[str, Any]) -> tuple[dict[str, float], str]:
    """Merged stage by stage, so that naming one stage leaves the others alone."""
    factors: dict[str, float] = {}
    sources: dict[str, str] = {}

    def add(stage: str, value: float, source: str) -> None:
        factors[stage], sources[stage] = value, source

    def add_table(table: Any, label: str, source: str) -> None:
        if not isinstance(table, Mapping):
            raise ConfigError(f"{label} must map a stage to its factor, for example {{'clip': 6}}.")
        for stage, value in table.items():
            add(str(stage).lower(), _checked(f"{label}[{stage!r}]", value, _FACTOR), source)

    add_table(Settings().sla_factors, "sla_factors", "default")
    add_table(from_file.get("sla_factors", {}), f"sla_factors in {file_name}", file_name)
    for variable, stage in _OLDER_STAGE_FACTORS.items():
        if os.environ.get(variable, "").strip():
            add(stage, _from_environment(variable, _FACTOR), variable)
    for variable in sorted(os.environ):
        if (match := _STAGE_FACTOR.fullmatch(variable)) and os.environ[variable].strip():
            add(match[1].lower(), _from_environment(variable, _FACTOR), variable)
    add_table(overrides.get("sla_factors", {}), "sla_factors", "code")
    named = sorted(set(sources.values()) - {"default"})
    return factors, ", ".join(named) or "default"


def _check_heartbeat(settings: Settings) -> None:
    if settings.heartbeat < settings.lease:
        return
    heartbeat, lease = (f"{name} ({settings.origin(name)})" for name in ("heartbeat", "lease"))
    raise ConfigError(
        f"{heartbeat} is {settings.heartbeat:g} s and {lease} is {settings.lease:g} s, so a lease would run out between two "
        f"heartbeats: make the heartbeat shorter, for example {settings.lease / 3:.3g} s, or the lease longer."
    )


def _check_tokens(settings: Settings) -> None:
    if settings.jwt_secret and settings.jwks_url:
        raise ConfigError("jwt_secret and jwks_url are both set: tokens are checked by one of them, so leave the other away.")
    if (settings.jwt_tenant_claim is None) != (settings.jwt_role_claim is None):
        raise ConfigError(
            "jwt_tenant_claim and jwt_role_claim belong together: a token names the tenant and the role, or neither."
        )
