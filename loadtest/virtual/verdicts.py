"""What was simulated beside what was published, and whether it is as good as promised."""

from collections.abc import Mapping
from typing import Any, NamedTuple

from loadtest.virtual.paper import SHARES

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
            "all at zero, one load after the other", "180 s", f"{found['sequential_s']:g} s", "as published", True
        ),
        ahead("the same, pre-warmed", found["prewarmed_s"], found["slowest_load_s"], "65 s"),
        ahead("without the LLM", found["without_llm_prewarmed_s"], found["without_llm_slowest_load_s"], "–"),
        Verdict(
            "from standby", "–", f"{standby_s:g} s at {cost:.0%} of the cost", "≤ 18 s at ≤ 15 %", standby_s <= 18
        ),
    ]


def _tiers(found: Figures) -> list[Verdict]:
    return [
        Verdict(
            f"cold starts removed, if asleep costs {float(price):.0%} of warm",
            "70 % for 20 % of the cost",
            f"{row['removed_share']:.0%} for {row['cost_share']:.1%}",
            "≥ 80 % for ≤ 15 %",
            row["removed_share"] >= 0.8 and row["cost_share"] <= 0.15,
        )
        for price, row in found["standby"].items()
    ]


def _predictive(found: Figures) -> list[Verdict]:
    removed, more = found["removed_share"], found["over_provision"]
    return [
        Verdict("cold starts of peak hours removed", "> 90 %", f"{removed:.1%}", "≥ 95 %", removed >= 0.95),
        Verdict("worker hours more for that", "–", f"{more:.1%}", "≤ 5 %", more <= 0.05),
    ]


def _hybrid(found: Figures) -> list[Verdict]:
    saved, own, both = found["saving_share"], found["own"]["p95_s"], found["hybrid"]["p95_s"]
    ours = f"{saved:.0%} (p95 {both:g} s, own {own:g} s)"
    return [Verdict("saved by hosted workers for spikes", "15–20 %", ours, "≥ 20 %", saved >= 0.2)]


def _burst(found: Figures) -> list[Verdict]:
    paper = {"embedding": "10", "retrieval": "6–7", "code": "2–3"}
    rows = []
    for name, each in found["by_class"].items():
        rate, back = SHARES[name] * found["times"], each["back_to_base_cooldowns"]
        ratio = f"{each['peak_ratio']:g}, back after {back} cooldowns"
        kept = 0.9 <= each["of_rate"] <= 1.1 and back is not None and back <= 2
        measure = f"{name} workers at {found['times']} × the traffic"
        rows.append(Verdict(measure, paper[name], ratio, f"{rate:g} ± 10 %, ≤ 2 cooldowns", kept))
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
