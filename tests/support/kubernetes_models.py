"""Kubernetes objects against the published models of its API: an unknown field, a wrong type or a missing field is told."""

from __future__ import annotations

import dataclasses
import importlib
import sys
import types
import typing
from collections.abc import Iterator
from typing import Any

KINDS = {
    "Deployment": "apps_v1",
    "Job": "batch_v1",
    "CronJob": "batch_v1",
    "Namespace": "core_v1",
    "Secret": "core_v1",
    "Service": "core_v1",
    "ServiceAccount": "core_v1",
    "Role": "rbac_v1",
    "RoleBinding": "rbac_v1",
}


def model(module: str, name: str) -> Any:
    """From `lightkube-models`. Its classes are dataclasses; of the client that they are made for they need these names only."""
    if "lightkube.core.schema" not in sys.modules:
        shim: Any = types.ModuleType("lightkube.core.schema")
        shim.DictMixin, shim.field, shim.dataclass = object, dataclasses.field, dataclasses.dataclass
        sys.modules["lightkube.core"] = types.ModuleType("lightkube.core")
        sys.modules["lightkube.core.schema"] = shim
    return getattr(importlib.import_module(f"lightkube.models.{module}"), name)


def problems(manifest: dict[str, Any]) -> list[str]:
    """Of a whole object, by its kind."""
    kind = manifest.get("kind", "")
    if kind not in KINDS:
        return [f"no model for the kind {kind!r}"]
    return list(differences(manifest, model(KINDS[kind], kind), kind))


def differences(value: Any, wanted: Any, at: str) -> Iterator[str]:
    origin = typing.get_origin(wanted)
    if wanted is Any:
        return
    if origin in (typing.Union, types.UnionType):
        options = [one for one in typing.get_args(wanted) if one is not type(None)]
        found = [list(differences(value, one, at)) for one in options]
        if all(found):
            yield from found[0]
    elif origin is list:
        if not isinstance(value, list):
            yield f"{at} is no list"
            return
        for number, one in enumerate(value):
            yield from differences(one, typing.get_args(wanted)[0], f"{at}[{number}]")
    elif origin is dict or wanted is dict:
        if not isinstance(value, dict):
            yield f"{at} is no mapping"
    elif dataclasses.is_dataclass(wanted):
        yield from _fields(value, wanted, at)
    elif isinstance(wanted, type) and wanted in (str, int, bool) and type(value) is not wanted:
        yield f"{at} is {value!r}, not {wanted.__name__}"


def _fields(value: Any, wanted: Any, at: str) -> Iterator[str]:
    if not isinstance(value, dict):
        yield f"{at} is no object"
        return
    hints = typing.get_type_hints(wanted, vars(sys.modules[wanted.__module__]))
    names = {one.metadata.get("json", one.name): one for one in dataclasses.fields(wanted)}
    for key, inner in value.items():
        if key not in names:
            yield f"{at} has no field {key}"
        else:
            yield from differences(inner, hints[names[key].name], f"{at}.{key}")
    for key, one in names.items():
        required = one.default is dataclasses.MISSING and one.default_factory is dataclasses.MISSING
        if required and key not in value:
            yield f"{at}.{key} is missing"
