"""`python -m infra.kubernetes [CONFIG]` writes the manifests that follow from a configuration folder anew."""

import sys
from pathlib import Path

from infra.kubernetes.render import CONFIG, write

write(Path(sys.argv[1]) if len(sys.argv) > 1 else CONFIG)
