"""The embedded plane as `up`, `demo` and tests start it: which services, which configuration folder."""

import sys
from pathlib import Path

import headway
from headway.plane.ports import PortMode, choose_ports
from headway.plane.service import ServiceSpec, SetupSpec
from headway.plane.supervisor import Plane, Progress

SERVICES = ("orchestrator", "aggregator", "host")
DRAIN_ENV = {"HEADWAY_DRAIN_TIMEOUT_S": "5"}


def default_config() -> Path:
    """`infra/config` of a checkout, else the copy inside the package."""
    package = Path(headway.__file__).parent
    checkout = package.parent / "infra" / "config"
    return checkout if checkout.is_dir() else package / "_config"


def embedded_plane(
    home: Path, config: Path, on_progress: Progress, *, ports: PortMode = "default", models: bool = True
) -> Plane:
    """A plane that runs the folder `config`; without `models`, real models are replaced by simulated ones."""
    chosen = choose_ports(ports)
    folder = str(config.resolve())
    services = [
        ServiceSpec(
            name=name,
            argv=(sys.executable, "-m", "headway", "serve", name),
            metrics_port=chosen.metrics[name],
            env={"HEADWAY_CONFIG": folder},
        )
        for name in SERVICES
    ]
    apply = (sys.executable, "-m", "headway", "config", "apply", folder, "--if-changed", "--no-wait")
    setup = SetupSpec(argv=apply if models else (*apply, "--no-models"))
    return Plane(home, chosen, services, setup, on_progress)
