"""What a user gets from pip: the kernels and data are in sdist and wheel, and the wheel runs far from the checkout."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tarfile
import tomllib
import zipfile
from dataclasses import dataclass
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from worklog import __version__

ROOT = Path(__file__).parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
KERNELS = sorted(path.name for path in (ROOT / "kernels").glob("*.cu"))


def run(*command: str | Path, cwd: Path, **environment: str) -> str:
    """Run a command without input and return what it printed; its error output becomes the failure's message."""
    done = subprocess.run(
        command, cwd=cwd, env=os.environ | environment, stdin=subprocess.DEVNULL, capture_output=True, text=True
    )
    assert done.returncode == 0, f"{command} left with {done.returncode}:\n{done.stdout}\n{done.stderr}"
    return done.stdout


@dataclass(frozen=True)
class Built:
    """The distributions of the checkout: a sdist, the wheel built from it, and the wheel built from the checkout."""

    sdist: Path
    wheel_from_sdist: Path
    wheel: Path


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Built:
    """Build as a release does, with the installed hatchling, so that no network is needed."""
    release, direct = tmp_path_factory.mktemp("release"), tmp_path_factory.mktemp("direct")
    build = (sys.executable, "-m", "build", "--no-isolation", str(ROOT))
    run(*build, "--outdir", release, cwd=ROOT)
    run(*build, "--wheel", "--outdir", direct, cwd=ROOT)
    return Built(
        sdist=next(release.glob("*.tar.gz")),
        wheel_from_sdist=next(release.glob("*.whl")),
        wheel=next(direct.glob("*.whl")),
    )


@pytest.fixture(scope="module")
def installed(built: Built, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder for PYTHONPATH that holds the installed wheel, ahead of the checkout."""
    target = tmp_path_factory.mktemp("installed")
    pip = (sys.executable, "-m", "pip", "--disable-pip-version-check", "install", "--quiet", "--no-deps", "--no-index")
    run(*pip, "--target", target, built.wheel_from_sdist, cwd=target)
    return target


def contents(wheel: Path) -> set[str]:
    with zipfile.ZipFile(wheel) as archive:
        return set(archive.namelist())


def test_the_wheel_holds_every_kernel_and_nothing_else_beside_them(built: Built) -> None:
    assert len(KERNELS) >= 8
    packaged = {name for name in contents(built.wheel) if name.startswith("worklog/_kernels/")}
    assert packaged == {f"worklog/_kernels/{name}" for name in KERNELS}


def test_the_wheel_holds_every_file_of_the_package(built: Built) -> None:
    paths = [path for path in (ROOT / "worklog").rglob("*") if path.is_file() and "__pycache__" not in path.parts]
    there = {path.relative_to(ROOT).as_posix() for path in paths}
    assert {"worklog/__init__.py", "worklog/py.typed", "worklog/harness/harness.cu"} <= there
    assert there <= contents(built.wheel)


def test_the_wheel_holds_the_ptx_of_every_kernel(built: Built) -> None:
    shipped = {name.partition("worklog/kernel/ptx/")[2] for name in contents(built.wheel)}
    assert {
        "index.json",
        *(f"{Path(name).stem.partition('_')[2]}.ptx" for name in KERNELS if name[0].isdigit()),
    } <= shipped


def test_the_wheel_holds_every_exploit_and_no_test(built: Built) -> None:
    there = {path.relative_to(ROOT / "tests" / "exploits") for path in (ROOT / "tests" / "exploits").glob("[wr]*/*.cu")}
    assert len(there) >= 50
    packaged = {name for name in contents(built.wheel) if name.startswith("worklog/_exploits/")}
    assert packaged == {f"worklog/_exploits/{path.as_posix()}" for path in there}


def test_the_wheel_holds_the_recording_and_the_charts_style(built: Built) -> None:
    names = contents(built.wheel)
    assert any(re.fullmatch(r"worklog/recordings/.+\.json", name) for name in names)
    assert any(re.fullmatch(r"worklog/plots/style\.toml", name) for name in names)


def test_nothing_but_the_package_is_installed(built: Built) -> None:
    assert {name.split("/")[0] for name in contents(built.wheel)} == {
        "worklog",
        f"gemm_worklog-{__version__}.dist-info",
    }


def test_a_wheel_built_from_the_sdist_is_the_same(built: Built) -> None:
    assert contents(built.wheel_from_sdist) == contents(built.wheel)


def test_the_sdist_keeps_the_kernels_at_the_top(built: Built) -> None:
    with tarfile.open(built.sdist) as archive:
        names = {name.partition("/")[2] for name in archive.getnames()}
    assert {f"kernels/{name}" for name in KERNELS} <= names
    assert {"LICENSE", "Makefile", "constraints.txt", "pyproject.toml", "tests/test_packaging.py"} <= names
    assert not any(name.startswith("worklog/_kernels") for name in names)


def test_the_installed_wheel_finds_its_kernels_from_another_folder(installed: Path, tmp_path: Path) -> None:
    code = "import worklog, worklog.kernel.kernel as k; print(worklog.__file__); print(k.kernels_dir())"
    module, kernels = run(sys.executable, "-c", code, cwd=tmp_path, PYTHONPATH=str(installed)).splitlines()
    assert Path(module) == installed / "worklog/__init__.py"
    assert Path(kernels) == installed / "worklog/_kernels"


def test_the_installed_wheel_finds_its_recording_from_another_folder(installed: Path, tmp_path: Path) -> None:
    code = "import worklog; print(worklog.open_run().label)"
    label = run(sys.executable, "-c", code, cwd=tmp_path, PYTHONPATH=str(installed), WORKLOG_SOURCE="recorded")
    assert label.startswith("recorded · NVIDIA H200")


def test_the_installed_wheel_runs_the_doctor_from_another_folder(installed: Path, tmp_path: Path) -> None:
    said = run(sys.executable, "-m", "worklog", "doctor", cwd=tmp_path, PYTHONPATH=str(installed))
    assert said.strip()
    assert not list(tmp_path.iterdir()), "doctor leaves nothing behind"


def test_the_checkouts_kernels_are_found_from_another_folder(tmp_path: Path) -> None:
    code = "import worklog.kernel.kernel as k; print(k.kernels_dir())"
    assert Path(run(sys.executable, "-c", code, cwd=tmp_path).strip()).resolve() == ROOT / "kernels"


def test_the_command_is_installed_and_knows_its_version(tmp_path: Path) -> None:
    command = Path(sys.executable).with_name("worklog")
    assert __version__ in run(command, "--version", cwd=tmp_path)


def test_importing_the_package_loads_nothing_heavy(tmp_path: Path) -> None:
    code = (
        "import sys, time; start = time.perf_counter(); import worklog; took = time.perf_counter() - start;"
        "heavy = {'cupy', 'torch', 'cuda', 'pynvml', 'matplotlib', 'pandas', 'IPython', 'ipywidgets', 'scipy'};"
        "print(took, *sorted(heavy & set(sys.modules)))"
    )
    answers = [run(sys.executable, "-c", code, cwd=tmp_path).split() for _ in range(3)]
    assert [loaded for _, *loaded in answers] == [[], [], []]
    assert min(float(took) for took, *_ in answers) < 0.3


def pins() -> dict[str, str]:
    lines = (ROOT / "constraints.txt").read_text(encoding="utf-8").splitlines()
    return dict(line.split("==") for line in lines if line and not line.startswith("#"))


@pytest.mark.parametrize("requirement", [*PROJECT["dependencies"], *PROJECT["optional-dependencies"]["dev"]])
def test_every_dependency_is_pinned_inside_its_range(requirement: str) -> None:
    wanted = Requirement(requirement)
    pinned = {canonicalize_name(name): version for name, version in pins().items()}
    assert wanted.specifier.contains(pinned[canonicalize_name(wanted.name)])


def test_a_pin_is_a_plain_public_version() -> None:
    assert all(re.fullmatch(r"[0-9]+(\.[0-9]+)*(\.post[0-9]+)?", version) for version in pins().values())


def test_make_alone_names_every_target() -> None:
    said = run("make", cwd=ROOT)
    assert re.findall(r"^make ([a-z]+) +\S", said, re.MULTILINE) == [
        "help",
        "article",
        "lab",
        "test",
        "check",
        "notebooks",
        "ptx",
        "clean",
    ]
