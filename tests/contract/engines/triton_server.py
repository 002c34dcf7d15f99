"""NVIDIA's own Triton server, from a package and without a container, with models of ours.

The package is no dependency of the project: it is put into a folder that all runs share, with the numpy that its
Python models need, which is not ours.
"""

import fcntl
import os
import re
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path

import httpx

from headway.plane.ports import free_ports
from tests.contract.engines.server_process import Server, is_ok

PACKAGES = ("nvidia-pytriton==0.7.0", "numpy==1.26.4")  # at the first call numpy 2 kills a model's process
VERSION = "2.51"
INSTALL_TIMEOUT_S = 300.0
START_TIMEOUT_S = 60.0
MODELS = Path(__file__).parent / "triton_models"
_PYTHON = f"{sys.version_info.major}.{sys.version_info.minor}"


class TritonMissingError(Exception):
    """It cannot be had here; the text says why."""


def installed() -> Path:
    """The environment that has the server, made if need be: 130 MB are fetched once, by pip."""
    root = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "headway"
    folder = root / f"triton-{VERSION}-python{_PYTHON}"
    root.mkdir(parents=True, exist_ok=True)
    with (root / "triton.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not folder.exists():
            _install(folder)
    return folder


def _install(folder: Path) -> None:
    if not (Path(sysconfig.get_config_var("LIBDIR") or "") / f"libpython{_PYTHON}.so.1.0").exists():
        raise TritonMissingError(f"Triton's Python models need libpython{_PYTHON}.so, which this Python has not")
    partial = folder.with_suffix(".partial")
    shutil.rmtree(partial, ignore_errors=True)
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", partial], check=True)
    pip = [
        sys.executable,
        "-m",
        "pip",
        "--python",
        str(partial / "bin" / "python"),
        "install",
        "--quiet",
        "--no-deps",
    ]
    try:
        subprocess.run(
            [*pip, "--only-binary", ":all:", "--retries", "1", *PACKAGES],
            check=True, capture_output=True, text=True, timeout=INSTALL_TIMEOUT_S,
        )  # fmt: skip
    except subprocess.SubprocessError as error:
        said = (getattr(error, "stderr", None) or str(error)).strip().splitlines()
        raise TritonMissingError(f"{PACKAGES[0]} cannot be installed: {said[-1] if said else error}") from None
    triton = _triton(partial)
    stub = "triton_python_backend_stub"
    shutil.copy(triton / "python_backend_stubs" / _PYTHON / stub, triton / "backends" / "python" / stub)
    for program in (triton / "bin" / "tritonserver", triton / "backends" / "python" / stub):
        program.chmod(0o755)
    partial.rename(folder)  # in one step: a folder that is there is whole


def _triton(folder: Path) -> Path:
    return folder / "lib" / f"python{_PYTHON}" / "site-packages" / "pytriton" / "tritonserver"


class TritonServer(Server):
    """A process on ports of its own, which it keeps when it is started again. Models are loaded when asked for."""

    def __init__(self, installation: Path, folder: Path) -> None:
        self._installation = installation
        super().__init__(folder)
        self._http_port, self._grpc_port, self._metrics_port = free_ports(3)
        self.desk = folder / "desk"
        self.desk.mkdir()
        for source in MODELS.glob("*.py"):
            model = folder / "models" / source.stem
            (model / "1").mkdir(parents=True)
            shutil.copy(source, model / "1" / "model.py")
            config = source.with_suffix(".pbtxt").read_text()
            (model / "config.pbtxt").write_text(config.replace("DESK", str(self.desk)))

    def add(self, model: Path) -> None:
        """One more in its repository: a folder with the model's name."""
        shutil.copytree(model, self._folder / "models" / model.name)

    @property
    def address(self) -> str:
        """Of gRPC."""
        return f"127.0.0.1:{self._grpc_port}"

    async def count(self, metric: str) -> float:
        """On its page of metrics; 0 where it is not yet."""
        async with httpx.AsyncClient(trust_env=False) as client:
            page = (await client.get(f"http://127.0.0.1:{self._metrics_port}/metrics")).text
        found = re.search(rf"^{metric}(?:{{.*}})? (\S+)$", page, re.MULTILINE)
        return float(found[1]) if found else 0.0

    async def start(self) -> None:
        """Returns when it listens."""
        triton = _triton(self._installation)
        libraries = [sysconfig.get_config_var("LIBDIR"), str(triton.parents[1] / "nvidia_pytriton.libs")]
        path = [str(self._installation / "bin"), os.environ["PATH"]]
        environment = {"PATH": os.pathsep.join(path), "LD_LIBRARY_PATH": os.pathsep.join(libraries)}
        await self.run(
            triton / "bin" / "tritonserver",
            f"--model-repository={self._folder / 'models'}",
            f"--backend-directory={triton / 'backends'}",
            "--model-control-mode=explicit",
            "--strict-readiness=false",
            *(f"--{kind}-address=127.0.0.1" for kind in ("http", "grpc", "metrics")),
            f"--http-port={self._http_port}",
            f"--grpc-port={self._grpc_port}",
            f"--metrics-port={self._metrics_port}",
            "--allow-gpu-metrics=false",
            "--exit-timeout-secs=2",
            env=environment,
            timeout_s=START_TIMEOUT_S,
        )

    async def is_ready(self) -> bool:
        """As whoever starts it asks, and sends it work by it: Docker, Kubernetes."""
        return await is_ok(f"http://127.0.0.1:{self._http_port}/v2/health/ready")

    async def kill(self) -> None:
        """It and the processes of its models, by force."""
        await super().kill()
        for paper in self.desk.iterdir():
            paper.unlink()
