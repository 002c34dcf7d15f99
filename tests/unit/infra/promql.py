"""PromQL as data: which series an expression reads, and which labels its result has."""

from collections.abc import Callable, Iterator, Mapping

import promql_parser as ql

from schemas.metrics import METRICS, Metric

Labels = frozenset[str]

OF_TARGETS: Labels = frozenset({"job", "instance", "host_kind"})
OF_WORKERS: Labels = frozenset({"worker"})
"""What a host adds to the metrics of its workers."""
SUFFIXES: Mapping[str, tuple[str, ...]] = {"histogram": ("_bucket", "_sum", "_count")}
BUILT_IN: dict[str, Labels] = {
    "up": OF_TARGETS,
    "process_resident_memory_bytes": OF_TARGETS | OF_WORKERS,
    "process_cpu_seconds_total": OF_TARGETS | OF_WORKERS,
    "ALERTS": frozenset({"alertname", "alertstate", "severity"}),
}
SET_OPERATORS = ("and", "unless")
NUMBERS = ("time", "scalar")
PICKING = ("topk", "bottomk")
"""Aggregations that keep the series they pick."""


class UnknownLabelError(ValueError):
    """An expression names a label that the series it reads do not have."""


def exposed() -> dict[str, Labels]:
    """Every series that a scrape may bring, and its labels."""
    return {
        name: labels | OF_TARGETS | OF_WORKERS for metric in METRICS for name, labels in _series(metric)
    } | BUILT_IN


def _series(metric: Metric) -> Iterator[tuple[str, Labels]]:
    for suffix in SUFFIXES.get(metric.kind, ("",)):
        yield metric.name + suffix, frozenset(metric.labels) | ({"le"} if suffix == "_bucket" else frozenset())


def nodes(expr: ql.Expr) -> list[ql.Expr]:
    """The expression and all its parts."""
    found: list[ql.Expr] = []
    ql.walk(expr, found.append)
    return found


def names(expr: ql.Expr) -> set[str]:
    """The series it reads."""
    return {str(node.name) for node in nodes(expr) if isinstance(node, ql.VectorSelector)}


class LabelReader:
    """Labels of results, by the rules of PromQL. Raises UnknownLabelError, KeyError for an unknown series."""

    def __init__(self, series: Mapping[str, Labels]) -> None:
        self._series = series
        self._by_kind: dict[type[ql.Expr], Callable[..., Labels]] = {
            ql.VectorSelector: self._of_selector,
            ql.MatrixSelector: lambda node: self.of(node.vector_selector),
            ql.SubqueryExpr: lambda node: self.of(node.expr),
            ql.ParenExpr: lambda node: self.of(node.expr),
            ql.UnaryExpr: lambda node: self.of(node.expr),
            ql.AggregateExpr: self._of_aggregate,
            ql.BinaryExpr: self._of_binary,
            ql.Call: self._of_call,
        }

    def of(self, node: ql.Expr) -> Labels:
        """The labels of its result; none for a number."""
        read = self._by_kind.get(type(node))
        return read(node) if read else frozenset()

    def _of_selector(self, node: ql.VectorSelector) -> Labels:
        has = self._series[str(node.name)]
        _require({matcher.name for matcher in node.matchers.matchers}, has, node)
        return has

    def _of_aggregate(self, node: ql.AggregateExpr) -> Labels:
        has = self.of(node.expr)
        kept = frozenset(node.modifier.labels) if node.modifier else frozenset()
        _require(kept, has, node)
        return has if str(node.op) in PICKING else kept

    def _of_binary(self, node: ql.BinaryExpr) -> Labels:
        left, right = self.of(node.lhs), self.of(node.rhs)
        if _is_number(node.lhs):
            return right
        if str(node.op) == "or":
            return left | right
        if node.modifier is None or node.modifier.matching is None:
            return left
        matched = frozenset(node.modifier.matching.labels)
        _require(matched, left, node)
        _require(matched, right, node)
        if str(node.op) in SET_OPERATORS:
            return left
        if node.modifier.card == ql.VectorMatchCardinality.OneToOne:
            return matched
        more = frozenset(node.modifier.group_labels or ())
        _require(more, right, node)
        return left | more

    def _of_call(self, node: ql.Call) -> Labels:
        of_arguments = [self.of(argument) for argument in node.args]
        if node.func.name in (*NUMBERS, "vector"):
            return frozenset()
        if node.func.name == "absent":
            return frozenset(_equal(node.args[0]))
        if node.func.name == "histogram_quantile":
            return of_arguments[1] - {"le"}
        made = {node.args[1].val} if node.func.name == "label_replace" else set()
        return of_arguments[0] | made


def _is_number(node: ql.Expr) -> bool:
    return isinstance(node, ql.NumberLiteral) or (isinstance(node, ql.Call) and node.func.name in NUMBERS)


def _equal(node: ql.Expr) -> Iterator[str]:
    assert isinstance(node, ql.VectorSelector), "absent() of anything else has no labels to name"
    for matcher in node.matchers.matchers:
        if matcher.op == ql.MatchOp.Equal:
            yield matcher.name


def _require(named: set[str] | Labels, has: Labels, node: ql.Expr) -> None:
    if unknown := sorted(set(named) - has):
        raise UnknownLabelError(f"{', '.join(unknown)} in {node}")


def unguarded_divisions(expr: ql.Expr) -> list[str]:
    """Divisors that may be 0: neither a number nor compared with something."""
    divisions = [node for node in nodes(expr) if isinstance(node, ql.BinaryExpr) and str(node.op) == "/"]
    return [str(node.rhs) for node in divisions if not _is_guarded(node.rhs)]


def _is_guarded(divisor: ql.Expr) -> bool:
    inside = divisor.expr if isinstance(divisor, ql.ParenExpr) else divisor
    if isinstance(inside, ql.NumberLiteral):
        return True
    return any(isinstance(node, ql.BinaryExpr) and str(node.op) == ">" for node in nodes(inside))
