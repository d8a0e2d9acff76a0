"""The installed size of the wheel with everything it requires: `python -m tests.installed_size`.

The wheel is built and installed into a folder of its own. Its requirements, which CI has installed already, are
followed through the metadata of this environment: an empty environment would take a minute. Byte code counts, extras
don't. NVRTC is larger here than for a user: constraints.txt pins it for PyTorch's sake.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
from importlib.metadata import Distribution, distribution
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).parents[1]
LIMIT_MB = 700  # of 10^6 bytes
SHOWN = 8


def installed(folder: Path) -> Distribution:
    """The wheel, built from this checkout and installed into a folder without its requirements."""
    build = (sys.executable, "-m", "build", "--no-isolation", "--wheel", ROOT, "--outdir", folder)
    subprocess.run(build, stdout=subprocess.DEVNULL, check=True)
    pip = (sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--no-index", "--target", folder / "site")
    subprocess.run((*pip, next(folder.glob("*.whl"))), check=True)
    return Distribution.at(next((folder / "site").glob("*.dist-info")))


def closure(top: Distribution) -> list[Distribution]:
    """A distribution and all that it requires on this machine, extras of a requirement included.

    Raises PackageNotFoundError for a requirement that is not installed.
    """
    found, waiting = {"": top}, [(top, "")]
    while waiting:
        parent, extra = waiting.pop()
        for requirement in map(Requirement, parent.requires or ()):
            if requirement.marker and not requirement.marker.evaluate({"extra": extra}):
                continue
            for wanted in ("", *requirement.extras):
                key = f"{canonicalize_name(requirement.name)}[{wanted}]"
                if key not in found:
                    found[key] = distribution(requirement.name)
                    waiting.append((found[key], wanted))
    return list({each.name: each for each in found.values()}.values())


def size(installed: Distribution) -> int:
    """Bytes of the files that pip wrote for a distribution."""
    paths = (Path(str(installed.locate_file(name))) for name in installed.files or ())
    return sum(path.stat().st_size for path in paths if path.is_file())


def main() -> None:
    """Print the sum and the largest parts. Exits with 1 at the limit or above."""
    with tempfile.TemporaryDirectory() as folder:
        sizes = {f"{each.name} {each.version}": size(each) for each in closure(installed(Path(folder)))}
    total = sum(sizes.values()) / 1e6
    print(f"the wheel and its {len(sizes) - 1} requirements: {total:.1f} MB installed, of which")
    for name in sorted(sizes, key=sizes.__getitem__, reverse=True)[:SHOWN]:
        print(f"{sizes[name] / 1e6:8.1f} MB  {name}")
    if any(name.startswith("torch ") for name in sizes) or total >= LIMIT_MB:
        sys.exit(f"installed size: {total:.1f} MB; it must stay under {LIMIT_MB} MB without PyTorch")


if __name__ == "__main__":
    main()
