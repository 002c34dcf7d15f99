"""The few shapes of expression that all dashboards need. None divides by zero: of nothing there is no share."""

RECENT = "5m"
"""What `now` means where a rate is asked for."""
FINE = "$__rate_interval"
"""As fine as the picture and the scrapes allow: for lines over time."""


def per_second(counter: str, where: str = "", window: str = RECENT, by: str = "") -> str:
    """How fast a counter rises."""
    return f"sum{_by(by)} (rate({counter}{{{where}}}[{window}]))"


def quantile(share: float, histogram: str, where: str = "", window: str = RECENT, by: str = "") -> str:
    """What `share` of the observations stayed below; absent (not NaN) where nothing was observed."""
    labels = f"le, {by}" if by else "le"
    return f"histogram_quantile({share}, {per_second(f'{histogram}_bucket', where, window, labels)}) >= 0"


def quantile_so_far(share: float, histogram: str, where: str, by: str) -> str:
    """Of all that today's processes have observed: for what happens once in their lives, before the first scrape."""
    return f"histogram_quantile({share}, sum by (le, {by}) ({histogram}_bucket{{{where}}})) >= 0"


def increase(counter: str, where: str, window: str, by: str) -> str:
    """By how much a counter rose, the first value of a new process included: `increase()` would miss it."""
    now = f"{counter}{{{where}}}"
    return f"sum by ({by}) ({now} - {now} offset {window} >= 0 or {now})"


def mean(histogram: str, where: str = "", window: str = RECENT, by: str = "") -> str:
    """Sum by count."""
    total, count = (per_second(f"{histogram}_{part}", where, window, by) for part in ("sum", "count"))
    return ratio(total, count)


def ratio(part: str, whole: str, matching: str = "") -> str:
    """`part` of `whole`, absent where there is no whole. `matching`: how labels match, if not all do."""
    divided = f"/ {matching}" if matching else "/"
    return f"{part} {divided} ({whole} > 0)"


def once(gauge: str, labels: str, where: str = "") -> str:
    """A gauge that every collector tells: one of several says it all."""
    return f"max by ({labels}) ({gauge}{{{where}}})"


def worst(expr: str) -> str:
    """The largest of them, with its name."""
    return f"topk(1, {expr})"


def or_zero(expr: str) -> str:
    """For what is rightly 0 when nobody counted any: a kind that never occurred, a share of none."""
    return f"({expr} or vector(0))"


def _by(labels: str) -> str:
    return f" by ({labels})" if labels else ""
