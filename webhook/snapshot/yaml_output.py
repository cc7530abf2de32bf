"""Writes values as YAML that kubectl reads back as the same values."""

from __future__ import annotations

from typing import Any

import yaml

from webhook.snapshot.yaml_documents import scalar


class _Dumper(yaml.CSafeDumper):
    """Quotes text that kubectl would read as another type, and never writes an alias."""

    def ignore_aliases(self, data: Any) -> bool:
        """Return True, so that every value is written out: people edit the output."""
        return True


def _text(dumper: _Dumper, value: str) -> yaml.Node:
    style = None if isinstance(scalar(value), str) else "'"
    return dumper.represent_scalar("tag:yaml.org,2002:str", value, style=style)


_Dumper.add_representer(str, _text)


def as_yaml(value: Any) -> str:
    """Return one value as a YAML document that kubectl reads back as the same value."""
    return yaml.dump(value, Dumper=_Dumper, sort_keys=False, allow_unicode=True, width=120)
