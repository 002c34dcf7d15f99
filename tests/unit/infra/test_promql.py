"""What the other tests read of expressions, on expressions whose answers are plain."""

import promql_parser as ql
import pytest

from tests.unit.infra.promql import LabelReader, UnknownLabelError, names, unguarded_divisions

SERIES = {"a": frozenset({"x", "y"}), "b": frozenset({"x"}), "c_bucket": frozenset({"x", "le"})}


@pytest.mark.parametrize(
    ("expr", "labels"),
    [
        ("a", {"x", "y"}),
        ("sum(a)", set()),
        ("sum by (y) (rate(a[5m]))", {"y"}),
        ("topk(1, max by (x) (a))", {"x"}),
        ("a / on (x) group_left () b", {"x", "y"}),
        ("a / on (x) b", {"x"}),
        ("a and on (x) b", {"x", "y"}),
        ("b or a", {"x", "y"}),
        ("2 * a", {"x", "y"}),
        ("time() - max by (x) (max_over_time(timestamp(a)[10m:15s]))", {"x"}),
        ("histogram_quantile(0.9, sum by (le, x) (rate(c_bucket[5m]))) >= 0", {"x"}),
        ('absent(a{x="1", y!="2"})', {"x"}),
        ('label_replace(b, "z", "$1", "x", "(.*)")', {"x", "z"}),
        ("vector(0)", set()),
    ],
)
def test_a_result_has_the_labels_that_prometheus_gives_it(expr: str, labels: set[str]) -> None:
    assert LabelReader(SERIES).of(ql.parse(expr)) == labels


@pytest.mark.parametrize("expr", ['b{y="1"}', "sum by (y) (b)", "a / on (y) group_left () b", "a and on (z) b"])
def test_a_label_that_a_series_has_not_is_found(expr: str) -> None:
    with pytest.raises(UnknownLabelError):
        LabelReader(SERIES).of(ql.parse(expr))


def test_series_are_found_wherever_they_stand() -> None:
    assert names(ql.parse("sum(rate(a[5m])) / (max_over_time(b[1h:1m]) > 0) or vector(0)")) == {"a", "b"}


@pytest.mark.parametrize(
    ("expr", "found"),
    [("a / b", 1), ("a / 2", 0), ("a / (b > 0)", 0), ("sum(a) / sum(b)", 1), ("1 - a / on (x) (b > 0 and b)", 0)],
)
def test_divisors_that_may_be_zero_are_found(expr: str, found: int) -> None:
    assert len(unguarded_divisions(ql.parse(expr))) == found
