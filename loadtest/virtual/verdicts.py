"""What was simulated beside what was published, and whether it is as good as promised."""

from collections.abc import Mapping
from typing import Any, NamedTuple

from loadtest.virtual.model import ASLEEP_SHARE
from loadtest.virtual.paper import BURST, CASCADE, HYBRID, PREDICTION, SHARES, TIER

Figures = Mapping[str, Any]


class Verdict(NamedTuple):
    """One measure."""

    measure: str
    paper: str
    ours: str
    promised: str
    kept: bool


def verdicts(parts: Figures) -> list[Verdict]:
    """Of the parts that there are, in the order in which they were measured."""
    judges = {
        "cascade": _cascade,
        "tiers": _tiers,
        "predictive": _predictive,
        "hybrid": _hybrid,
        "burst": _burst,
        "ahead": _ahead,
        "day": _day,
    }
    return [verdict for name, found in parts.items() if name in judges for verdict in judges[name](found)]


def _cascade(found: Figures) -> list[Verdict]:
    def ahead(measure: str, took_s: float, load_s: float, paper: str) -> Verdict:
        return Verdict(measure, paper, f"{took_s:g} s", f"≤ {1.05 * load_s:g} s", took_s <= 1.05 * load_s)

    standby_s, cost = found["standby_s"], found["standby_cost_share"]
    return [
        Verdict(
            "all at zero, one load after the other",
            CASCADE["sequential_s"].told,
            f"{found['sequential_s']:g} s",
            "as published",
            True,
        ),
        ahead("the same, pre-warmed", found["prewarmed_s"], found["slowest_load_s"], CASCADE["prewarmed_s"].told),
        ahead("without the LLM", found["without_llm_prewarmed_s"], found["without_llm_slowest_load_s"], "–"),
        Verdict(
            "from standby", "–", f"{standby_s:g} s at {cost:.0%} of the cost", "≤ 18 s at ≤ 15 %", standby_s <= 18
        ),
    ]


def _tiers(found: Figures) -> list[Verdict]:
    """Promised for the price that is assumed; what another one would come to is shown."""
    rows = []
    for price, row in found["standby"].items():
        removed, cost, is_promised = row["removed_share"], row["cost_share"], float(price) == ASLEEP_SHARE
        measure = f"cold starts removed, if asleep costs {float(price):.0%} of warm"
        promised, kept = ("≥ 80 % for ≤ 15 %", removed >= 0.8 and cost <= 0.15) if is_promised else ("–", True)
        paper = TIER.told if is_promised else "–"
        rows.append(Verdict(measure, paper, f"{removed:.0%} for {cost:.1%}", promised, kept))
    return rows


def _predictive(found: Figures) -> list[Verdict]:
    removed, more = found["removed_share"], found["over_provision"]
    return [
        Verdict("cold starts of peak hours removed", PREDICTION.told, f"{removed:.1%}", "≥ 95 %", removed >= 0.95),
        Verdict("worker hours more for that", "–", f"{more:.1%}", "≤ 5 %", more <= 0.05),
    ]


def _hybrid(found: Figures) -> list[Verdict]:
    saved, own, both = found["saving_share"], found["own"]["p95_s"], found["hybrid"]["p95_s"]
    ours = f"{saved:.0%} (p95 {both:g} s, own {own:g} s)"
    is_kept = saved >= 0.2 and own <= both
    return [Verdict("saved by hosted workers for spikes", HYBRID.told, ours, "≥ 20 % at equal p95", is_kept)]


def _burst(found: Figures) -> list[Verdict]:
    rows = []
    for name, each in found["by_class"].items():
        rate, back = SHARES[name] * found["times"], each["back_to_base_cooldowns"]
        ratio = f"{each['peak_ratio']:g}, back after {back} cooldowns"
        kept = 0.9 <= each["of_rate"] <= 1.1 and back is not None and back <= 2
        measure = f"{name} workers at {found['times']} × the traffic"
        rows.append(Verdict(measure, BURST[name].told, ratio, f"{rate:g} ± 10 %, ≤ 2 cooldowns", kept))
    return rows


def _ahead(found: Figures) -> list[Verdict]:
    share = found["false_share"]
    return [Verdict("starts in vain, on a branch of 25 %", "–", f"{share:.0%}", "≤ 30 %", share <= 0.3)]


def _day(found: Figures) -> list[Verdict]:
    apart = [each["least_apart_s"] for each in found["by_class"].values() if each["least_apart_s"] is not None]
    late, least = found["late_share"], min(apart, default=None)
    steady = "never twice" if least is None else f"{least:g} s apart"
    return [
        Verdict("runs later than 30 s in a day", "–", f"{late:.2%}", "0 %", late == 0),
        Verdict("workers taken away", "–", steady, "≥ 300 s apart", least is None or least >= 300),
    ]
