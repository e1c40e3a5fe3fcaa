"""Where a Kubernetes API is and how to show who we are: the files of a service account, or a kubeconfig."""

from __future__ import annotations

import base64
import os
import ssl
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec

from holdfast.errors import ConfigError

SERVICE_ACCOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount")


class Cluster(msgspec.Struct, frozen=True, kw_only=True):
    url: str
    namespace: str
    token: Callable[[], str | None]
    """Asked for each call: the token of a service account is replaced about every hour."""
    tls: ssl.SSLContext | None = None
    """None: plain HTTP, as through `kubectl proxy`."""


def find_cluster(kubeconfig: str | None = None, *, namespace: str | None = None) -> Cluster:
    """From inside a pod its service account; else the kubeconfig that is named, `KUBECONFIG`, or the usual file."""
    if kubeconfig is None and os.environ.get("KUBERNETES_SERVICE_HOST"):
        return from_service_account(SERVICE_ACCOUNT, namespace=namespace)
    path = kubeconfig or os.environ.get("KUBECONFIG", "").split(os.pathsep)[0] or "~/.kube/config"
    return from_kubeconfig(Path(path).expanduser(), namespace=namespace)


def from_service_account(folder: Path, *, namespace: str | None = None) -> Cluster:
    host, port = os.environ.get("KUBERNETES_SERVICE_HOST", ""), os.environ.get("KUBERNETES_SERVICE_PORT", "443")
    token_file = folder / "token"
    try:
        tls = ssl.create_default_context(cafile=str(folder / "ca.crt"))
        _read(token_file)
        own = _read(folder / "namespace")
    except (OSError, ssl.SSLError) as error:
        raise ConfigError(
            f"the service account in {folder} cannot be read ({error}): mount it, or give a kubeconfig."
        ) from None
    shown = f"[{host}]" if ":" in host else host
    return Cluster(url=f"https://{shown}:{port}", namespace=namespace or own, token=lambda: _read_now(token_file), tls=tls)


def from_kubeconfig(path: Path, *, namespace: str | None = None) -> Cluster:
    config = _load(path)
    context = _named(config, "context", str(config.get("current-context", "")), path)
    cluster = _named(config, "cluster", str(context.get("cluster", "")), path)
    user = _named(config, "user", str(context.get("user", "")), path) if context.get("user") else {}
    if "exec" in user or "auth-provider" in user:
        raise ConfigError(
            f"{path} gets its credentials from a program: give Holdfast a kubeconfig with a token or a certificate."
        )
    url = str(cluster.get("server", ""))
    if not url.startswith(("https://", "http://")):
        raise ConfigError(f"{path} names no server for its current context: it must begin with https://.")
    tls = _tls(cluster, user, path) if url.startswith("https://") else None
    chosen = namespace or str(context.get("namespace") or "default")
    return Cluster(url=url.rstrip("/"), namespace=chosen, token=_token_of(user, path), tls=tls)


def _load(path: Path) -> dict[str, Any]:
    try:
        import yaml
    except ModuleNotFoundError:
        raise ConfigError("reading a kubeconfig needs PyYAML: pip install 'holdfast[kubernetes]'.") from None
    try:
        config = yaml.safe_load(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, yaml.YAMLError) as error:
        raise ConfigError(f"{path} cannot be read as a kubeconfig: {type(error).__name__}.") from None
    if not isinstance(config, dict):
        raise ConfigError(f"{path} is no kubeconfig: it must have clusters, users and contexts.")
    return config


def _named(config: dict[str, Any], what: str, name: str, path: Path) -> dict[str, Any]:
    for entry in config.get(f"{what}s") or []:
        if isinstance(entry, dict) and entry.get("name") == name and isinstance(entry.get(what), dict):
            found: dict[str, Any] = entry[what]
            return found
    raise ConfigError(f"{path} has no {what} {name!r}: choose another with `kubectl config use-context`.")


def _token_of(user: dict[str, Any], path: Path) -> Callable[[], str | None]:
    if user.get("tokenFile"):
        file = path.parent / str(user["tokenFile"])
        return lambda: _read_now(file)
    token = str(user["token"]) if user.get("token") else None
    return lambda: token


def _tls(cluster: dict[str, Any], user: dict[str, Any], path: Path) -> ssl.SSLContext:
    try:
        authority = _bytes(cluster, "certificate-authority", path)
        context = ssl.create_default_context(cadata=authority.decode() if authority else None)
        if cluster.get("insecure-skip-tls-verify"):
            context.check_hostname = False
            context.verify_mode = ssl.CERT_NONE
        certificate, key = _bytes(user, "client-certificate", path), _bytes(user, "client-key", path)
        if certificate and key:
            _load_pair(context, certificate, key)
    except (OSError, ValueError) as error:
        raise ConfigError(f"a certificate in {path} cannot be used: {type(error).__name__}.") from None
    return context


def _load_pair(context: ssl.SSLContext, certificate: bytes, key: bytes) -> None:
    """The ssl module reads a key from files alone; this one exists for a moment, and for nobody else."""
    with tempfile.NamedTemporaryFile() as file:
        file.write(certificate + b"\n" + key)
        file.flush()
        context.load_cert_chain(file.name)


def _bytes(part: dict[str, Any], key: str, path: Path) -> bytes | None:
    """Given and empty is an error: it must not fall back to what is trusted by default."""
    if f"{key}-data" in part:
        found = base64.b64decode("".join(str(part[f"{key}-data"]).split()), validate=True)
    elif part.get(key):
        found = (path.parent / str(part[key])).read_bytes()
    else:
        return None
    if not found:
        raise ValueError(f"{key} is empty")
    return found


def _read(file: Path) -> str:
    return file.read_text(encoding="utf-8").strip()


def _read_now(file: Path) -> str | None:
    """A token that is away for a moment: the cluster then says 401, and that is told as what it is."""
    try:
        return _read(file)
    except OSError:
        return None
