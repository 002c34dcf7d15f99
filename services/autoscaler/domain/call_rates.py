"""How often runs that start will call each class: the rate at which work comes, wherever it waits on its way.

While the first class of a pipeline is behind, the others see too few tasks; when it catches up, they see too many,
for as long as that takes. Neither is a rate to be sized for. What starts is, and it is known before the first task.
"""

from collections import Counter, defaultdict
from collections.abc import Mapping

from schemas.graphs import Graph
from services.autoscaler.domain.arrivals import Arrivals
from services.autoscaler.domain.branches import Branches, calls
from services.autoscaler.domain.rates import arrivals_per_s


class CallRates:
    """Of all pipelines."""

    def __init__(self, branches: Branches) -> None:
        self._branches = branches
        self._started: Counter[str] = Counter()
        self._graphs: dict[str, Graph] = {}
        """The one that each pipeline's runs began with last."""
        self._arrivals: defaultdict[str, Arrivals] = defaultdict(Arrivals)
        self._runs_per_s: dict[str, float] = {}

    def begin(self) -> None:
        """Anew: nothing that was counted before belongs to a rate."""
        self._arrivals.clear()
        self._runs_per_s.clear()

    def start(self, graph: Graph) -> None:
        """A run has started."""
        self._started[graph.pipeline] += 1
        self._graphs[graph.pipeline] = graph

    def look(self, now_ms: int) -> None:
        """Counts up to a time."""
        for pipeline, runs in self._started.items():
            self._arrivals[pipeline].observe(runs, now_ms)
            self._runs_per_s[pipeline] = arrivals_per_s([self._arrivals[pipeline]]) or 0.0
            self._branches.pace(pipeline, self._runs_per_s[pipeline])

    def per_s(self) -> Mapping[str, float]:
        """Calls a second by model class, as far as its pipelines have been looked at for 5 s."""
        rates: defaultdict[str, float] = defaultdict(float)
        for pipeline, runs_per_s in self._runs_per_s.items():
            for step in calls(self._graphs[pipeline]):
                rates[str(step.chain[0].model_class)] += self._branches.share(pipeline, step) * runs_per_s
        return rates
