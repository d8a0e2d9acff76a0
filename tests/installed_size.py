"""The installed size of the wheel with everything it requires: `python -m tests.installed_size`.

The wheel is built and installed into a folder of its own. Its requirements, which CI has installed already, are
followed through the metadata of this environment: an empty environment would take a minute. Byte code counts, extras
don't. NVRTC is larger here than for a user: constraints.txt pins it for PyTorch's sake.
"""

import os
import subprocess
import sys
import tempfile
from importlib.metadata import Distribution, distribution
from pathlib import Path

from packaging.requirements import Requirement

ROOT = Path(__file__).parents[1]
LIMIT_MB = 720  # of 10^6 bytes
SHOWN = 8


def installed(folder: Path) -> Distribution:
    """The wheel, built from this checkout, with the core that it has compiled, and installed into a folder without its
    requirements.
    """
    build = (sys.executable, "-m", "build", "--no-isolation", "--wheel", ROOT, "--outdir", folder)
    compiled = {"WORKLOG_CACHE": str(ROOT / "worklog" / "emulator" / "core")}
    subprocess.run(build, env=os.environ | compiled, stdout=subprocess.DEVNULL, check=True)
    pip = (sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--no-index", "--target", folder / "site")
    subprocess.run((*pip, next(folder.glob("*.whl"))), check=True)
    return Distribution.at(next((folder / "site").glob("*.dist-info")))


def sizes(top: Distribution) -> dict[str, int]:
    """Bytes of the files that pip wrote for a distribution and for all that it requires on this machine, extras of a
    requirement included. Raises PackageNotFoundError for a requirement that is not installed.
    """
    known, waiting = {(top.name, "")}, [(top, "")]
    for parent, extra in waiting:
        for requirement in map(Requirement, parent.requires or ()):
            if requirement.marker is None or requirement.marker.evaluate({"extra": extra}):
                wanted = distribution(requirement.name)
                new = {(wanted.name, name) for name in ("", *requirement.extras)} - known
                known |= new
                waiting += [(wanted, name) for _, name in new]
    parts = {part.name: part for part, _ in waiting}
    paths = {name: [Path(str(part.locate_file(file))) for file in part.files or ()] for name, part in parts.items()}
    return {name: sum(path.stat().st_size for path in paths[name] if path.is_file()) for name in parts}


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        megabytes = {name: size / 1e6 for name, size in sizes(installed(Path(folder))).items()}
    total = sum(megabytes.values())
    print(f"the wheel and its {len(megabytes) - 1} requirements: {total:.1f} MB installed, of which")
    for name in sorted(megabytes, key=megabytes.__getitem__, reverse=True)[:SHOWN]:
        print(f"{megabytes[name]:8.1f} MB  {name}")
    if "torch" in megabytes or total >= LIMIT_MB:
        sys.exit(f"installed size: {total:.1f} MB; it must stay under {LIMIT_MB} MB without PyTorch")
