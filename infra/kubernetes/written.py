"""Manifests as YAML that people can read: in the order in which they were made, nothing abbreviated."""

from typing import Any

import yaml


class _Plain(yaml.SafeDumper):
    """A text of several lines stands as such; what is there twice is written twice."""

    def ignore_aliases(self, data: Any) -> bool:
        return True


def _text(dumper: yaml.SafeDumper, text: str) -> yaml.ScalarNode:
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style="|" if "\n" in text else None)


_Plain.add_representer(str, _text)


def dumped(*documents: Any) -> str:
    """One after the other."""
    return yaml.dump_all(documents, Dumper=_Plain, sort_keys=False, width=118)
