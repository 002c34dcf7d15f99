"""Why that many workers: each term of a decision in words, as `headway scale explain CLASS` prints them."""

from typing import NamedTuple

from services.autoscaler.domain.policy import BUSY_SHARE, Decision


class Line(NamedTuple):
    """One term."""

    term: str
    value: str
    how: str = ""


def explain(decision: Decision) -> list[Line]:
    """From the load to the decision, in the order in which it was made."""
    terms, rules = decision.terms, decision.rules
    lines = [
        Line("sustained", f"{terms.sustained:.2f} slots", "λ·S: seconds of work that runs bring each second"),
        Line("arriving", f"{terms.arriving:.2f} slots", "λ'·S: what arrives now; of a wave, what the headroom takes"),
        Line("draining", f"{terms.draining:.2f} slots", f"waiting·S over {rules.target_drain_s:g} s and a start"),
        Line("lag", "no worker" if terms.lag_s is None else f"{terms.lag_s:.1f} s", "outstanding·S / capacity"),
        Line(
            "by load",
            str(terms.by_load),
            f"⌈max(sustained / {BUSY_SHARE:g}, arriving + draining) / {terms.slots:.4g} slots⌉",
        ),
        Line("in flight", str(terms.in_flight), "workers that running tasks need"),
        Line("steadied", str(decision.steadied.replicas), _steadied(decision)),
    ]
    lines += [Line("floor", str(floor.replicas), floor.why) for floor in decision.floors]
    lines.append(Line("ceiling", str(rules.ceiling), "max_replicas, and the partitions of a lane"))
    lines.append(Line("replicas", str(decision.replicas), because(decision)))
    lines.append(Line("asleep", str(decision.asleep), f"tier {rules.tier} keeps {rules.kept}"))
    return lines


def _steadied(decision: Decision) -> str:
    most = decision.steadied.wishes[0].replicas
    return f"at most {most} wished for in {decision.rules.cooldown_s:g} s; down once in that time"


def because(decision: Decision) -> str:
    """What decided, in a few words."""
    if decision.missing:
        return f"held: {', '.join(decision.missing)} cannot be read"
    highest = max(decision.floors, key=lambda floor: floor.replicas)
    wanted = max(decision.steadied.replicas, highest.replicas)
    if wanted > decision.rules.ceiling:
        return "the ceiling"
    if highest.replicas > decision.steadied.replicas:
        return highest.why
    wish = decision.terms.wish(decision.steadied.replicas)
    return "the load" if wish == decision.steadied.replicas else "the stabilisation window"
