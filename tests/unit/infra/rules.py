"""The rules of Prometheus as data."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import promql_parser as ql
import yaml

from tests.unit.infra.promql import LabelReader, Labels, exposed

PROMETHEUS = Path("infra/prometheus")

Rule = dict[str, Any]


def rules() -> list[Rule]:
    """All of them, file by file, in the order of their evaluation."""
    files = [
        yaml.safe_load(path.read_text(encoding="utf-8")) for path in sorted((PROMETHEUS / "rules").glob("*.yml"))
    ]
    return [rule for file in files for group in file["groups"] for rule in group["rules"]]


def alerts() -> list[Rule]:
    """A name may have several: one for each severity or window."""
    return [rule for rule in rules() if "alert" in rule]


def recorded() -> dict[str, Labels]:
    """Every series that the rules make, and its labels. One may be made of others."""
    known: dict[str, Labels] = {}
    for rule in sorted(rules(), key=_depth):
        if "record" in rule:
            known[rule["record"]] = labels_of(rule, {**exposed(), **known})
    return known


def labels_of(rule: Rule, series: Mapping[str, Labels]) -> Labels:
    """Of a rule's result."""
    return LabelReader(series).of(ql.parse(rule["expr"])) | frozenset(rule.get("labels", ()))


def _depth(rule: Rule) -> int:
    """Files are read by name, and rules of one file may stand on those of another: never deeper than one."""
    return int("headway:" in rule["expr"])
