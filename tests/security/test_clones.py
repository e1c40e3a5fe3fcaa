"""A repository that nobody trusts is cloned: nothing of it runs, nothing lands elsewhere, nothing grows for ever."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path

import pytest

from holdfast.errors import InvalidOption
from holdfast.extraction.context import ExtractionContext, Options, Project
from holdfast.extraction.repositories import _check, check_for_strangers
from holdfast.pipeline import Done, Step
from tests.support.addresses import PRIVATE, PUBLIC, PUBLIC_6, answer
from tests.support.extraction_steps import Ran, program, run_steps, step_named
from tests.support.git_server import WHO, GitServer, commit, git


@pytest.fixture
def server(tmp_path: Path) -> Iterator[GitServer]:
    served = GitServer(tmp_path / "served")
    yield served
    served.close()


class Cloned:
    """What a clone left in its checkout, by the names of its files."""

    def __init__(self, url: str, tmp_path: Path) -> None:
        self._url, self._workspaces = url, tmp_path / "workspaces"
        self.files: set[str] = set()

    async def __call__(self, source: str, *, branch: str | None = None, **options: object) -> Ran:
        project = Project(id="local", source=source, branch=branch)
        context = ExtractionContext(project, Options(**{"trusted": True, **options}))  # type: ignore[arg-type]
        return await run_steps(self._url, [step_named("cloning"), Step("look", self._look)], context, self._workspaces)

    async def _look(self, context: ExtractionContext) -> Done:
        root = context.checkout
        self.files = {path.relative_to(root).as_posix() for path in root.rglob("*") if ".git" not in path.parts}
        return Done()


@pytest.fixture
def clone(sqlite_url: str, tmp_path: Path) -> Cloned:
    return Cloned(sqlite_url, tmp_path)


@pytest.fixture
def scan(sqlite_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Awaitable[Ran]]:
    """Opens a folder of this machine and makes its SBOM, with the programs of a test."""
    monkeypatch.setenv("PATH", f"{tmp_path / 'programs'}:{os.environ['PATH']}")

    async def opened(folder: Path) -> Ran:
        context = ExtractionContext(Project(id="local", source=str(folder)), Options(trusted=True))
        return await run_steps(sqlite_url, [step_named("cloning"), step_named("sbom")], context, tmp_path / "workspaces")

    return opened


@pytest.fixture
def mined_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A home whose git settings run a program at every checkout: from a template's hook, and as a filter. What it makes."""
    home, mark = tmp_path / "home", tmp_path / "executed"
    hook = home / "template" / "hooks" / "post-checkout"
    hook.parent.mkdir(parents=True)
    hook.write_text(f"#!/bin/sh\ntouch {mark}-by-hook\n", encoding="utf-8")
    hook.chmod(0o755)
    (home / ".gitconfig").write_text(
        f'[init]\n templateDir = {home}/template\n[filter "mine"]\n smudge = touch {mark}-by-filter; cat\n required = true\n',
        encoding="utf-8",
    )
    monkeypatch.setenv("HOME", str(home))
    return tmp_path


def executed(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.glob("executed*"))


HOSTILE = {
    ".gitattributes": b"* filter=mine\n",
    ".gitmodules": b'[submodule "a"]\n path = a\n url = ext::sh -c touch% executed-a\n update = !touch executed-b\n',
    ".githooks/post-checkout": b"#!/bin/sh\ntouch executed-by-own-hook\n",
    "package.json": b'{"scripts": {"preinstall": "touch executed-by-npm"}}',
    "a.txt": b"text\n",
}


async def test_neither_hooks_nor_filters_nor_modules_run(server: GitServer, clone: Cloned, mined_home: Path) -> None:
    """The same repository makes a plain `git clone` with this home run two programs, so that the trap is known to work."""
    commit(server.root / "mine", HOSTILE)
    address = f"{server.url}/ok/mine"
    env = {"PATH": os.environ["PATH"], "HOME": os.environ["HOME"], **WHO}
    subprocess.run(["git", "clone", "--quiet", address, str(mined_home / "plain")], env=env, check=True, capture_output=True)
    assert executed(mined_home) == ["executed-by-filter", "executed-by-hook"]
    for path in mined_home.glob("executed*"):
        path.unlink()
    ran = await clone(address)
    assert ran.outcomes["cloning"].status == "ok" and "a.txt" in clone.files
    assert executed(mined_home) == [] and not any("executed" in name for name in clone.files)


async def test_a_repositorys_own_settings_on_its_host_stay_there(server: GitServer, clone: Cloned, tmp_path: Path) -> None:
    """They are no part of a clone: hooks and an fsmonitor that the host's copy names run nowhere."""
    commit(server.root / "set", {"a.txt": b"1"})
    mark = tmp_path / "executed"
    (server.root / "set" / ".git" / "hooks" / "post-checkout").write_text(f"#!/bin/sh\ntouch {mark}\n", encoding="utf-8")
    (server.root / "set" / ".git" / "hooks" / "post-checkout").chmod(0o755)
    git("config", "core.fsmonitor", f"touch {mark}", cwd=server.root / "set")
    ran = await clone(f"{server.url}/ok/set")
    assert ran.outcomes["cloning"].status == "ok" and executed(tmp_path) == []


@pytest.mark.parametrize("address", PRIVATE)
async def test_no_notation_of_a_private_address_is_cloned_from(
    clone: Cloned, address: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Written out, when it is connected and when it is cloned; and behind a name, beside a public one."""
    written = f"https://{f'[{address}]' if ':' in address else address}/a.git"
    with pytest.raises(InvalidOption, match="private address"):
        check_for_strangers(Project(id="", source=written), ())
    assert (await clone(written, trusted=False)).last.code == "address_private"
    answer(monkeypatch, PUBLIC, address)
    assert (await clone("https://example.com/a.git", trusted=False)).last.code == "address_private"


@pytest.mark.parametrize("odd", ["2130706433", "0x7f000001", "127.1", "017700000001"])
async def test_odd_notations_of_loopback_are_looked_up_and_refused(clone: Cloned, odd: str) -> None:
    """The system's resolver understands them; what counts is the address that it gives."""
    assert (await clone(f"https://{odd}/a.git", trusted=False)).last.code in ("address_private", "host_unreachable")


async def test_git_is_tied_to_the_addresses_that_were_checked(
    clone: Cloned, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A name that leads elsewhere a moment later gains nothing, nor does a redirect or a proxy of the environment."""
    seen = tmp_path / "seen.json"
    program(
        tmp_path / "programs", "git", f"open({str(seen)!r}, 'w').write(json.dumps([arguments, dict(os.environ)])); sys.exit(1)"
    )
    monkeypatch.setenv("PATH", f"{tmp_path / 'programs'}:{os.environ['PATH']}")
    monkeypatch.setenv("https_proxy", "http://10.0.0.1:3128")
    asked = answer(monkeypatch, PUBLIC, PUBLIC_6)
    await clone("https://example.com:8443/a.git", trusted=False)
    arguments, environment = json.loads(seen.read_text(encoding="utf-8"))
    assert f"http.curloptResolve=example.com:8443:[{PUBLIC_6}],{PUBLIC}" in arguments and asked == ["example.com"]
    assert {"http.followRedirects=false", "credential.helper=", "core.hooksPath=/dev/null"} <= set(arguments)
    assert environment["GIT_ALLOW_PROTOCOL"] == "https" and "https_proxy" not in environment


async def test_a_host_that_an_operator_allows_may_not_send_git_elsewhere(
    clone: Cloned, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its addresses are not asked for, since they may be private; but it stays at that host."""
    seen = tmp_path / "seen.json"
    program(tmp_path / "programs", "git", f"open({str(seen)!r}, 'w').write(json.dumps(arguments)); sys.exit(1)")
    monkeypatch.setenv("PATH", f"{tmp_path / 'programs'}:{os.environ['PATH']}")
    await clone("https://git.internal/a.git", trusted=False, hosts_allowed=("git.internal",))
    assert "http.followRedirects=false" in json.loads(seen.read_text(encoding="utf-8"))


@pytest.mark.parametrize("trusted", [True, False])
@pytest.mark.parametrize(
    "source",
    ["--upload-pack=touch executed", "-u touch executed", "--config=core.fsmonitor=touch executed://", "ext::touch executed"],
)
async def test_an_address_is_never_taken_for_an_option(clone: Cloned, tmp_path: Path, source: str, trusted: bool) -> None:
    """Neither from the command line nor from strangers: it fails as an address, and no program of it is started."""
    source = source.replace("executed", str(tmp_path / "executed"))
    ran = await clone(source, trusted=trusted)
    assert ran.last.status == "failed" and executed(tmp_path) == []


async def test_a_branch_is_never_taken_for_an_option(server: GitServer, clone: Cloned, tmp_path: Path) -> None:
    """It is one word behind `--branch=`."""
    commit(server.root / "app", {"a.txt": b"1"})
    ran = await clone(f"{server.url}/ok/app", branch=f"--upload-pack=touch {tmp_path}/executed")
    assert (ran.last.code, executed(tmp_path)) == ("branch_not_found", [])


@pytest.mark.parametrize("name", [b"..", b".git", b"../escaped", b"/escaped"])
async def test_a_tree_whose_names_lead_out_of_the_checkout_writes_nothing_there(
    server: GitServer, clone: Cloned, tmp_path: Path, name: bytes
) -> None:
    """Made by hand, since git itself writes no such tree; the clone fails and its folder goes."""
    folder = server.root / "crooked"
    commit(folder, {"a.txt": b"1"})
    blob = bytes.fromhex(git("hash-object", "-w", "a.txt", cwd=folder).strip())
    made = subprocess.run(
        ["git", "hash-object", "-t", "tree", "-w", "--literally", "--stdin"],
        input=b"100644 " + name + b"\0" + blob, cwd=folder, capture_output=True, check=True,
    )  # fmt: skip
    crooked = git("commit-tree", made.stdout.decode().strip(), "-m", "crooked", cwd=folder).strip()
    git("update-ref", "refs/heads/main", crooked, cwd=folder)
    before = {path for path in tmp_path.rglob("*escaped*")}
    ran = await clone(f"{server.url}/ok/crooked")
    assert ran.left_behind == [] and {path for path in tmp_path.rglob("*escaped*")} == before
    assert not any(name.startswith(("..", "/")) for name in clone.files)


async def test_a_bomb_of_equal_trees_is_stopped_by_the_limit(server: GitServer, clone: Cloned) -> None:
    """One file of 100 kB, ten thousand times in a repository of a few kB: the folder's size is watched while it grows."""
    folder = server.root / "bomb"
    commit(folder, {"a.bin": b"x" * 100_000})
    tree = git("rev-parse", "HEAD:", cwd=folder).strip()
    for _ in range(4):
        below = "".join(f"040000 tree {tree}\t{number}\n" for number in range(10))
        tree = subprocess.run(
            ["git", "mktree"], input=below, cwd=folder, capture_output=True, check=True, text=True
        ).stdout.strip()
    bomb = git("commit-tree", tree, "-m", "bomb", cwd=folder).strip()
    git("update-ref", "refs/heads/main", bomb, cwd=folder)
    ran = await clone(f"{server.url}/ok/bomb", repository_gb_max=0.02)
    assert (ran.last.code, ran.left_behind) == ("repository_too_large", [])


async def test_a_folders_own_settings_start_nothing_when_a_scanner_asks_git_about_it(
    scan: Callable[..., Awaitable[Ran]], tmp_path: Path
) -> None:
    """A folder that somebody sent: what its `.git/config` names runs for a plain `git status`, and not for one of a scanner."""
    folder, mark = tmp_path / "sent", tmp_path / "executed"
    commit(folder, {"package.json": b'{"dependencies": {"ms": "2.1.2"}}'})
    git("config", "core.fsmonitor", f"touch {mark};", cwd=folder)
    git("status", cwd=folder)
    assert executed(tmp_path) == ["executed"]
    mark.unlink()
    program(
        tmp_path / "programs",
        "cdxgen",
        f"import subprocess; subprocess.run(['git', '-C', {str(folder)!r}, 'status'], check=True)",
    )
    await scan(folder)
    assert executed(tmp_path) == []


@pytest.mark.parametrize("path", ["..", "../other", "a/../../b", "/../etc"])
def test_a_package_path_out_of_the_repository_is_refused_when_it_is_connected(path: str) -> None:
    """Before anything is stored."""
    with pytest.raises(InvalidOption, match="must lie in the repository"):
        _check("acme", "shop", Project(id="", source="https://example.org/a.git", path=path))


@pytest.mark.parametrize(
    ("written", "spelled"),
    [
        ("bücher.example", "xn--bcher-kva.example"),
        ("BÜCHER.example.", "xn--bcher-kva.example"),
        ("faß.example", "xn--fa-hia.example"),
        ("例え。テスト", "xn--r8jz45g.xn--zckzah"),
        ("Example.COM.", "example.com"),
    ],
)
async def test_git_gets_a_host_in_the_one_spelling_that_was_checked(
    clone: Cloned, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, written: str, spelled: str
) -> None:
    """By another one it would look the name up again, past the addresses that it is tied to."""
    seen = tmp_path / "seen.json"
    program(tmp_path / "programs", "git", f"open({str(seen)!r}, 'w').write(json.dumps(arguments)); sys.exit(1)")
    monkeypatch.setenv("PATH", f"{tmp_path / 'programs'}:{os.environ['PATH']}")
    asked = answer(monkeypatch, PUBLIC)
    await clone(f"https://{written}/a.git", trusted=False)
    arguments = json.loads(seen.read_text(encoding="utf-8"))
    assert asked == [spelled] and f"http.curloptResolve={spelled}:443:{PUBLIC}" in arguments
    assert f"https://{spelled}/a.git" in arguments


@pytest.mark.parametrize(
    "host", ["a" * 64 + ".example", "a..example", "exa%6dple.com", "\u2488com.example", "xn--\u00fc", "[::1"]
)
async def test_a_host_that_cannot_be_spelled_is_refused(clone: Cloned, host: str) -> None:
    """When it is connected and when it is cloned, in words and not by an error of the encoder."""
    written = f"https://{host}/a.git"
    with pytest.raises(InvalidOption):
        check_for_strangers(Project(id="", source=written), ())
    assert (await clone(written, trusted=False)).last.code == "address_invalid"


@pytest.mark.parametrize("host", ["１２７.０.０.１", "①②⑦.0.0.1", "ｌocalhost", "127。0。0。1"])
async def test_an_address_in_letters_that_only_look_like_it_is_refused(clone: Cloned, host: str) -> None:
    """They become the ordinary ones before anything is checked."""
    with pytest.raises(InvalidOption, match="private address"):
        check_for_strangers(Project(id="", source=f"https://{host}/a.git"), ())
    assert (await clone(f"https://{host}/a.git", trusted=False)).last.code == "address_private"
