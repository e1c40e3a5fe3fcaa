"""Settings: which source wins, what is refused and how, and database URLs that never show their password."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.database_url import parse_database_url
from holdfast.errors import ConfigError
from holdfast.settings import Settings, load_settings

OLDER = ("DATABASE_URL", "_SEC", "_MAX_ATTEMPTS", "_SLA_FACTOR", "QUEUE_RETRY_BACKOFF_MS_BASE", "QUEUE_RETRY_BACKOFF_MS_MAX")


@pytest.fixture(autouse=True)
def empty_world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """No file in the working directory, no variable of ours or of an older name in the environment."""
    monkeypatch.chdir(tmp_path)
    for name in list(os.environ):
        if name.startswith("HOLDFAST_") or name.endswith(OLDER):
            monkeypatch.delenv(name)
    return tmp_path


def refusal(url: str | None = None, /, **overrides: Any) -> str:
    with pytest.raises(ConfigError) as caught:
        load_settings(url, **overrides)
    return str(caught.value)


# -- which source wins -----------------------------------------------------------------------------------------------


def test_without_any_source_the_defaults_hold() -> None:
    """The documented defaults, each with its origin."""
    settings = load_settings()
    assert settings == Settings(origins=settings.origins)
    assert (settings.database_url, settings.lease, settings.heartbeat) == ("sqlite:///holdfast.db", 300, 15)
    assert {settings.origin("lease"), settings.origin("sla_factors")} == {"default"}


def test_code_beats_environment_beats_older_name_beats_file(empty_world: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Adding the sources weakest first, each takes over, and origin() names it."""
    seen = []

    def look(**overrides: Any) -> None:
        settings = load_settings(**overrides)
        seen.append((settings.heartbeat, settings.origin("heartbeat")))

    look()
    (empty_world / "holdfast.toml").write_text("heartbeat = 1")
    look()
    monkeypatch.setenv("HEARTBEAT_SEC", "2")
    look()
    monkeypatch.setenv("HOLDFAST_HEARTBEAT_SEC", "3.5")
    look()
    look(heartbeat=4)
    assert seen == [(15, "default"), (1, "holdfast.toml"), (2, "HEARTBEAT_SEC"), (3.5, "HOLDFAST_HEARTBEAT_SEC"), (4, "code")]


def test_the_url_is_the_first_argument(monkeypatch: pytest.MonkeyPatch) -> None:
    """It counts as code."""
    monkeypatch.setenv("HOLDFAST_DATABASE_URL", "sqlite:///env.db")
    settings = load_settings("sqlite:///code.db")
    assert (settings.database_url, settings.origin("database_url")) == ("sqlite:///code.db", "code")


def test_a_url_given_twice_is_refused() -> None:
    """Which of the two was meant cannot be known."""
    assert "twice" in refusal("sqlite:///a.db", database_url="sqlite:///b.db")


@pytest.mark.parametrize(
    ("stronger", "weaker", "field"),
    [("JOB_MAX_ATTEMPTS", "QUEUE_MAX_ATTEMPTS", "max_attempts"), ("DEFAULT_LEASE_SEC", "QUEUE_VISIBILITY_SEC", "lease")],
)
def test_of_two_older_names_the_newer_one_wins(stronger: str, weaker: str, field: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """JOB_MAX_ATTEMPTS over QUEUE_MAX_ATTEMPTS, DEFAULT_LEASE_SEC over QUEUE_VISIBILITY_SEC."""
    monkeypatch.setenv(weaker, "70")
    alone = load_settings()
    monkeypatch.setenv(stronger, "80")
    both = load_settings()
    assert [(getattr(s, field), s.origin(field)) for s in (alone, both)] == [(70, weaker), (80, stronger)]


def test_backoff_in_the_environment_is_in_milliseconds(monkeypatch: pytest.MonkeyPatch) -> None:
    """The names say MS; the settings are seconds."""
    monkeypatch.setenv("QUEUE_RETRY_BACKOFF_MS_BASE", "2500")
    monkeypatch.setenv("HOLDFAST_QUEUE_RETRY_BACKOFF_MS_MAX", "60000")
    settings = load_settings()
    assert (settings.backoff_base, settings.backoff_max) == (2.5, 60.0)


def test_stage_factors_are_merged_stage_by_stage(empty_world: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Any stage can be named; one named in a strong source leaves the others to the weaker ones."""
    (empty_world / "holdfast.toml").write_text("[sla_factors]\nclip = 2\nscan = 3")
    monkeypatch.setenv("CLIP_SLA_FACTOR", "4")
    monkeypatch.setenv("HOLDFAST_DEEP_SCAN_SLA_FACTOR", "5.5")
    monkeypatch.setenv("HOLDFAST_SLA_FACTOR", "7")
    settings = load_settings(sla_factors={"burnin": 9})
    assert settings.sla_factors == {"clip": 4, "scan": 3, "deep_scan": 5.5, "burnin": 9, "asr": 12}
    assert settings.sla_factor == 7
    assert settings.origin("sla_factors") == "CLIP_SLA_FACTOR, HOLDFAST_DEEP_SCAN_SLA_FACTOR, code, holdfast.toml"


def test_an_empty_variable_counts_as_not_set(monkeypatch: pytest.MonkeyPatch) -> None:
    """Compose files pass empty text for what nobody set."""
    monkeypatch.setenv("HOLDFAST_HEARTBEAT_SEC", " ")
    assert load_settings().origin("heartbeat") == "default"


def test_pyproject_is_read_where_there_is_no_file_of_our_own(empty_world: Path) -> None:
    """[tool.holdfast], until a holdfast.toml is there."""
    (empty_world / "pyproject.toml").write_text("[tool.holdfast]\nmax_attempts = 8")
    first = load_settings()
    (empty_world / "holdfast.toml").write_text("max_attempts = 9")
    second = load_settings()
    assert [(s.max_attempts, s.origin("max_attempts")) for s in (first, second)] == [
        (8, "pyproject.toml"),
        (9, "holdfast.toml"),
    ]


@pytest.mark.parametrize("content", ["", "[tool.other]\nx = 1", "[project]\nname = 'tool'"])
def test_a_pyproject_of_somebody_else_is_left_alone(content: str, empty_world: Path) -> None:
    """Most programs have one, without a word about Holdfast."""
    (empty_world / "pyproject.toml").write_text(content)
    assert load_settings().origin("lease") == "default"


# -- what is refused -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("value", ["soon", "-1", "0", "nan", "inf", "1e30", "15s"])
def test_a_wrong_variable_is_refused_by_name_with_value_and_what_is_right(value: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The operator can act on the sentence without reading code."""
    monkeypatch.setenv("HOLDFAST_HEARTBEAT_SEC", value)
    message = refusal()
    assert message.startswith("HOLDFAST_HEARTBEAT_SEC is ")
    assert "must be a number of seconds above 0, for example 15" in message


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("lease", "300"), ("lease", True), ("lease", None), ("max_attempts", 2.5), ("max_attempts", 0), ("max_attempts", 2**31),
        ("grace", -0.1), ("payload_bytes_max", -5), ("retention_logs", -1), ("sla_factors", [6]), ("sla_factors", {"clip": 0}),
        ("database_url", 7),
    ],
)  # fmt: skip
def test_a_wrong_keyword_is_refused_by_name(field: str, value: Any) -> None:
    """Types are not guessed in code: text is no number, True is no count."""
    assert refusal(**{field: value}).startswith(field)


def test_zero_is_fine_where_it_means_at_once() -> None:
    """Grace, backoff, retention and idle exit may be nothing at all."""
    settings = load_settings(grace=0, backoff_base=0, retention_logs=0, exit_when_idle=0)
    assert (settings.grace, settings.backoff_base, settings.retention_logs, settings.exit_when_idle) == (0, 0, 0, 0)


def test_none_in_code_turns_the_idle_exit_of_the_environment_off(monkeypatch: pytest.MonkeyPatch) -> None:
    """None is a value of exit_when_idle: run until stopped."""
    monkeypatch.setenv("HOLDFAST_EXIT_WHEN_IDLE_SEC", "60")
    assert (load_settings().exit_when_idle, load_settings(exit_when_idle=None).exit_when_idle) == (60, None)


def test_an_unknown_keyword_is_refused_with_the_nearest_name() -> None:
    """A typing mistake must not become a setting that does nothing."""
    assert refusal(hartbeat=5) == "there is no setting 'hartbeat'; did you mean 'heartbeat'?"


def test_an_unknown_key_in_the_file_is_refused_with_the_files_name(empty_world: Path) -> None:
    """The same in the file."""
    (empty_world / "holdfast.toml").write_text("leese = 5")
    assert refusal() == "holdfast.toml: there is no setting 'leese'; did you mean 'lease'?"


def test_a_wrong_value_in_the_file_is_refused_with_the_files_name(empty_world: Path) -> None:
    """Where to look is part of the message."""
    (empty_world / "holdfast.toml").write_text("lease = 'long'")
    assert refusal().startswith("lease in holdfast.toml is 'long': it must be")


def test_a_file_that_is_no_toml_is_refused_by_name(empty_world: Path) -> None:
    """With the parser's own reason."""
    (empty_world / "holdfast.toml").write_text("lease = = 5")
    assert refusal().startswith("holdfast.toml in the working directory cannot be read: ")


def test_a_short_lease_brings_a_heartbeat_that_fits_it(empty_world: Path) -> None:
    """Whoever only shortens the lease need not know that the heartbeat must be shorter still."""
    assert load_settings(lease=6).heartbeat == 2


@pytest.mark.parametrize("heartbeat", [10, 11])
def test_a_heartbeat_not_shorter_than_the_lease_is_refused_with_both_origins(
    heartbeat: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Such a worker would lose every job it holds."""
    monkeypatch.setenv("HOLDFAST_DEFAULT_LEASE_SEC", "10")
    message = refusal(heartbeat=heartbeat)
    assert "heartbeat (code)" in message
    assert "lease (HOLDFAST_DEFAULT_LEASE_SEC)" in message


def test_asking_for_the_origin_of_no_setting_is_refused() -> None:
    """A mistyped name does not answer `default`."""
    with pytest.raises(ConfigError, match="no setting 'leases'"):
        load_settings().origin("leases")


def test_redaction_patterns_come_from_code_environment_or_file(empty_world: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A list in code and in the file; in the environment one on each line, since a pattern may hold any separator."""
    (empty_world / "holdfast.toml").write_text("redact = ['cust-[0-9]{4,8}']")
    assert load_settings().redact == ("cust-[0-9]{4,8}",)
    monkeypatch.setenv("HOLDFAST_REDACT", "a,b|c\nd{2,3}")
    assert load_settings().redact == ("a,b|c", "d{2,3}")
    assert load_settings(redact=["x"]).redact == ("x",)


@pytest.mark.parametrize(
    ("value", "said"), [("x", "a list of"), ([5], "a list of"), (["x*"], "empty text"), (["("], "compiled")]
)
def test_a_redaction_pattern_that_cannot_work_is_refused_by_name(value: Any, said: str) -> None:
    """Before anything starts, not when the first secret passes."""
    message = refusal(redact=value)
    assert message.startswith("redact") and said in message


# -- database URLs ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("url", "path"),
    [
        ("sqlite:///rel.db", "rel.db"),
        ("sqlite:///data/rel.db", "data/rel.db"),
        ("sqlite:////var/abs.db", "/var/abs.db"),
        ("sqlite+aiosqlite:///rel.db", "rel.db"),
        ("sqlite:///:memory:", ":memory:"),
        ("sqlite://", ":memory:"),
    ],
)
def test_a_sqlite_url_gives_a_path(url: str, path: str) -> None:
    """Three slashes relative, four absolute, none or :memory: for memory."""
    parsed = parse_database_url(url)
    assert (parsed.kind, parsed.path, parsed.url) == ("sqlite", path, None)


@pytest.mark.parametrize(
    ("url", "driver_url", "safe"),
    [
        ("postgresql://u:pw@h:5432/d", "postgresql://u:pw@h:5432/d", "postgresql://u@h:5432/d"),
        ("postgres://h/d", "postgresql://h/d", "postgresql://h/d"),
        ("postgresql+asyncpg://u:pw@h/d", "postgresql://u:pw@h/d", "postgresql://u@h/d"),
        ("postgresql://u:p%40w@[::1]:1/d", "postgresql://u:p%40w@[::1]:1/d", "postgresql://u@[::1]:1/d"),
        ("postgresql://u:p@w@h1:1,h2:2/d", "postgresql://u:p@w@h1:1,h2:2/d", "postgresql://u@h1:1,h2:2/d"),
        (
            "postgresql://u:@/d?host=/run/pg&password=pw&sslmode=require",
            "postgresql://u:@/d?host=/run/pg&password=pw&sslmode=require",
            "postgresql://u@/d?host=/run/pg",
        ),
    ],
)
def test_a_postgres_url_loses_its_driver_part_and_its_display_form_the_password(url: str, driver_url: str, safe: str) -> None:
    """The driver gets everything, people get what tells databases apart."""
    parsed = parse_database_url(url)
    assert (parsed.kind, parsed.url, parsed.safe) == ("postgres", driver_url, safe)


@pytest.mark.parametrize(
    "url",
    ["", "jobs.db", "mysql://u:hunter22@h/d", "sqlite://jobs.db", "sqlite:///", "sqlite:///a.db?mode=ro", "redis://x",
     "://", "a b://c"],
)  # fmt: skip
def test_any_other_url_is_refused_with_an_example(url: str) -> None:
    """One sentence that shows what a right one looks like."""
    with pytest.raises(ConfigError, match=r"sqlite:///jobs\.db") as caught:
        parse_database_url(url)
    assert "hunter22" not in str(caught.value)


@pytest.mark.parametrize(
    "password", ["hun/ter22", "hun#ter22", "hun?ter22", "123/ter22", "hun ter22", "123?ter22", "hun[ter22"]
)
def test_a_password_with_raw_special_characters_is_refused_or_kept_out_of_sight(password: str) -> None:
    """Such a URL splits in the wrong place, and the rest of the password must not appear as host or path."""
    url = f"postgresql://user:{password}@host/db"
    try:
        shown = parse_database_url(url).safe
    except ConfigError as error:
        shown = str(error)
    assert not any(part in shown for part in ("hun", "ter22", "123"))


@given(st.text(min_size=1, max_size=20).map(lambda text: f"Zq{text}Zq"))
def test_no_password_is_ever_shown(password: str) -> None:
    """Whatever characters it has, neither the display form, nor repr, nor a refusal contains its marks."""
    try:
        parsed = parse_database_url(f"postgresql://user:{password}@host/db")
    except ConfigError as error:
        assert "Zq" not in str(error)
    else:
        assert "Zq" not in parsed.safe + repr(parsed)


@pytest.mark.parametrize("variable", ["HOLDFAST_DATABASE_URL", "DATABASE_URL"])
def test_a_wrong_url_names_its_variable_and_not_its_password(variable: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Start-up errors end in logs that many people read."""
    monkeypatch.setenv(variable, "mysql://root:hunter22@h/d")
    message = refusal()
    assert message.startswith(f"{variable}: mysql:// is no database that Holdfast knows")
    assert "hunter22" not in message


def test_a_url_in_the_wrong_variable_does_not_show_its_password(monkeypatch: pytest.MonkeyPatch) -> None:
    """A mixed-up environment is no reason to print a secret."""
    monkeypatch.setenv("HOLDFAST_HEARTBEAT_SEC", "postgresql://u:hunter22@h/d")
    message = refusal()
    assert message.startswith("HOLDFAST_HEARTBEAT_SEC is ")
    assert "hunter22" not in message


def test_printing_the_settings_does_not_show_the_database_password() -> None:
    """repr goes into tracebacks and logs."""
    assert "hunter22" not in repr(load_settings("postgresql://u:hunter22@h/d"))
