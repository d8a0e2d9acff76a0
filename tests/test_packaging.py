"""What a user gets from pip.

The kernels and data are in sdist and wheel, and the wheel runs far from the checkout.
"""

import os
import re
import shlex
import shutil
import subprocess
import sys
import tarfile
import tomllib
import zipfile
from importlib.metadata import Distribution, distribution
from pathlib import Path
from typing import Any

import pytest
import yaml
from markdown_it import MarkdownIt
from packaging.metadata import Metadata
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from hatch_build import Core, Readme, for_index
from worklog import __version__
from worklog.emulator.core.build import builds, is_whole, machine, stem, variants

ROOT = Path(__file__).parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
LIMIT_MB = 720  # of 10^6 bytes, installed
NOTEBOOKS = sorted(
    path.relative_to(ROOT / "notebooks").as_posix()
    for pattern in ("*.ipynb", "*.md", "examples/*.*", "story/*.py")
    for path in (ROOT / "notebooks").glob(pattern)
)


def run(*command: str | Path, cwd: Path, **environment: str) -> str:
    """Run a command without input and return what it printed.

    Its error output becomes the failure's message.
    """
    done = subprocess.run(
        command,
        cwd=cwd,
        env=os.environ | environment,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, (
        f"{command} left with {done.returncode}:\n{done.stdout}\n{done.stderr}"
    )
    return done.stdout


@pytest.fixture(scope="module")
def fast_cc(tmp_path_factory):
    """Return a compiler that optimises nothing."""
    path = tmp_path_factory.mktemp("bin") / "fast"
    path.write_text('#!/bin/bash\nexec cc "${@/-O3/-O0}"\n')
    path.chmod(0o755)
    return str(path)


@pytest.fixture(scope="module")
def release(tmp_path_factory, fast_cc):
    """Return a folder with the sdist and the wheel built from it.

    The installed hatchling builds it: no network is needed.
    """
    folder = tmp_path_factory.mktemp("release")
    cache = Path(os.environ["WORKLOG_CACHE"])
    cache.mkdir(exist_ok=True)
    for core in (ROOT / "worklog/emulator/core").glob(
        "core-*.so"
    ):  # the editable install has compiled it
        shutil.copy(core, cache)
    run(
        sys.executable,
        "-m",
        "build",
        "--no-isolation",
        str(ROOT),
        "--outdir",
        folder,
        cwd=ROOT,
        CC=fast_cc,
    )
    return folder


@pytest.fixture(scope="module")
def installed(release, tmp_path_factory):
    """Return a folder for PYTHONPATH that holds the installed wheel, ahead of the checkout."""
    target = tmp_path_factory.mktemp("installed")
    pip = (
        sys.executable,
        "-m",
        "pip",
        "--disable-pip-version-check",
        "install",
        "--quiet",
        "--no-deps",
        "--no-index",
    )
    run(*pip, "--target", target, next(release.glob("*.whl")), cwd=target)
    return target


def test_wheel_and_sdist_hold_the_package_its_data_the_kernels_and_the_exploits(release):
    """Every file, also recordings, PTX and the charts' style.

    In the wheel nothing else, in the sdist kernels/.
    """
    files = [
        path
        for path in (ROOT / "worklog").rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    ]
    package = [
        path for path in files if path.suffix not in (".so", ".wasm")
    ]  # an editable install and the tests in a browser compile into the checkout
    folder = ROOT / "kernels"
    kernels = {path.relative_to(folder).as_posix() for path in folder.rglob("*.cu*")}
    exploits = ROOT / "tests" / "exploits"
    highlighting = ROOT / "worklog" / "lab" / "highlighting"  # JupyterLab's, outside the package
    wanted = {path.relative_to(ROOT).as_posix() for path in package if path.parent != highlighting}
    wanted |= {
        f"gemm_worklog-{__version__}.data/data/share/jupyter/labextensions/worklog/{path.name}"
        for path in highlighting.iterdir()
    }
    wanted |= {
        f"worklog/_exploits/{path.relative_to(exploits).as_posix()}"
        for path in exploits.glob("[wr]*/*.cu")
    }
    wanted |= {f"worklog/_kernels/{name}" for name in kernels} | {
        f"worklog/_notebooks/{name}" for name in NOTEBOOKS
    }
    with zipfile.ZipFile(next(release.glob("*.whl"))) as archive:
        names = {name for name in archive.namelist() if ".dist-info/" not in name}
    cache = Path(os.environ["WORKLOG_CACHE"])
    kept = [path for flags in variants(machine()) for path in builds(cache, stem(flags))]
    assert len(kept) >= len(variants(machine())) and all(map(is_whole, kept)), "not compiled again"
    cores = {f"worklog/emulator/core/{path.name}" for path in kept}
    assert wanted <= names <= wanted | cores and len(kernels) >= 8 and len(NOTEBOOKS) >= 16
    for flags in variants(machine()):
        assert any(name.startswith(f"worklog/emulator/core/{stem(flags)}-") for name in names)
    with tarfile.open(next(release.glob("*.tar.gz"))) as source:
        names = {name.partition("/")[2] for name in source.getnames()}
    top = {"LICENSE", "Makefile", "constraints.txt", "pyproject.toml", "tests/test_packaging.py"}
    top |= {"CHANGELOG.md", "CITATION.cff", ".github/CONTRIBUTING.md", ".pre-commit-config.yaml"}
    assert {f"kernels/{name}" for name in kernels} | top <= names
    assert not any(name.startswith("worklog/_kernels") or name.endswith(".so") for name in names)


def test_citation_and_changelog_are_of_this_version():
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text(encoding="utf-8"))
    assert citation["version"] == __version__ and citation["license"] == PROJECT["license"]
    assert citation["cff-version"] == "1.2.0" and {"title", "authors", "message"} <= {*citation}
    changelog = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    assert f"\n## {__version__}\n" in changelog


def test_wheel_and_sdist_pass_twine_and_hold_the_licence_and_the_readme_for_an_index(release):
    wheel = next(release.glob("*.whl"))
    sdist = next(release.glob("*.tar.gz"))
    said = run(
        sys.executable, "-m", "twine", "--no-color", "check", "--strict", wheel, sdist, cwd=release
    )
    assert said.count("PASSED") == 2
    top = f"gemm_worklog-{__version__}"
    with zipfile.ZipFile(wheel) as archive, tarfile.open(sdist) as source:
        written = [
            archive.read(f"{top}.dist-info/{name}") for name in ("licenses/LICENSE", "METADATA")
        ]
        members = [source.extractfile(f"{top}/{name}") for name in ("LICENSE", "PKG-INFO")]
        assert written == [member.read() for member in members if member]
    assert written[0] == (ROOT / "LICENSE").read_bytes()
    shown = for_index(
        (ROOT / "README.md").read_text(encoding="utf-8"), PROJECT["urls"].get("Repository", "")
    )
    assert Metadata.from_email(written[1]).description == shown


def sizes(top: Distribution) -> dict[str, int]:
    """Return the bytes of the files that pip wrote for a distribution and its requirements.

    All that it requires on this machine counts, extras of a requirement included. Raises
    PackageNotFoundError for a requirement that is not installed.
    """
    known = {(top.name, "")}
    waiting = [(top, "")]
    for parent, extra in waiting:
        for requirement in map(Requirement, parent.requires or ()):
            if requirement.marker is None or requirement.marker.evaluate({"extra": extra}):
                wanted = distribution(requirement.name)
                new = {(wanted.name, name) for name in ("", *requirement.extras)} - known
                known |= new
                waiting += [(wanted, name) for _, name in new]
    parts = {part.name: part for part, _ in waiting}
    paths = {
        name: [Path(str(part.locate_file(file))) for file in part.files or ()]
        for name, part in parts.items()
    }
    return {
        name: sum(path.stat().st_size for path in paths[name] if path.is_file()) for name in parts
    }


def test_the_wheel_and_its_requirements_stay_small(installed):
    """Extras don't count.

    NVRTC is larger here than for a user: constraints.txt pins it for PyTorch's sake.
    """
    megabytes = {
        name: size / 1e6
        for name, size in sizes(Distribution.at(next(installed.glob("*.dist-info")))).items()
    }
    assert "nvidia-cuda-nvrtc" in megabytes and "torch" not in megabytes
    assert sum(megabytes.values()) < LIMIT_MB, sorted(megabytes.items(), key=lambda pair: -pair[1])[
        :8
    ]


@pytest.mark.parametrize("repository", ["", "https://example.org/worklog"])
def test_on_an_index_no_link_and_no_picture_leads_nowhere(repository):
    metadata: dict[str, Any] = {"urls": {"Repository": repository} if repository else {}}
    Readme(str(ROOT), {}).update(metadata)
    page = MarkdownIt("commonmark").enable("table").render(metadata["readme"]["text"])
    addresses = re.findall(r'(?:href|src|srcset)="([^" ]*)', page)
    assert addresses and all(address.startswith("https://") for address in addresses)
    ours = [
        address.partition("/HEAD/")[2]
        for address in addresses
        if repository and address.startswith(repository)
    ]
    assert all((ROOT / path).exists() for path in ours) and bool(ours) is bool(repository) is (
        "ladder.png" in page
    )


def test_on_an_index_code_stays_and_a_picture_is_a_sentence():
    code = "\n```\n[m](n)\n```\n"
    picture = "*Picture in the repository: {}.*"
    text = f"`a[0](b)` [c `d`](e.md) [f](https://g) [![h](i.svg)](j) ![k.](l.png){code}"
    assert (
        for_index(text)
        == f"`a[0](b)` c `d` [f](https://g) {picture.format('h')} {picture.format('k')}{code}"
    )
    blob = "https://o/r/blob/HEAD/"
    raw = "https://o/r/raw/HEAD/"
    there = (
        f"`a[0](b)` [c `d`]({blob}e.md) [f](https://g) [![h]({raw}i.svg)]({blob}j) "
        f"![k.]({raw}l.png){code}"
    )
    assert for_index(text, "https://o/r") == there
    assert for_index(
        '<picture>\n<source srcset="a"><img src="b" alt="c">\n</picture>'
    ) == picture.format("c")
    assert (
        for_index('<a href="#d">e</a> <img src="https://f" alt="g">')
        == 'e <img src="https://f" alt="g">'
    )
    assert for_index('<a href="#d">e</a>', "https://o/r") == '<a href="https://o/r#d">e</a>'


def test_from_another_folder_the_installed_wheel_and_the_checkout_find_what_belongs_to_them(
    installed, tmp_path
):
    code = (
        "import worklog as w, worklog.kernel as k; print(w.__file__, k.source.kernels_dir(), "
        "w.open_run().label, sep='\\n')"
    )
    for package, kernels, path in (
        (installed, "worklog/_kernels", {"PYTHONPATH": str(installed)}),
        (ROOT, "kernels", {}),
    ):
        said = run(sys.executable, "-c", code, cwd=tmp_path, WORKLOG_SOURCE="recorded", **path)
        module, folder, label = said.splitlines()
        assert Path(module).resolve() == package / "worklog/__init__.py"
        assert Path(folder).resolve() == package / kernels and label.startswith(
            "recorded · NVIDIA H200"
        )
    assert run(
        sys.executable, "-m", "worklog", "doctor", cwd=tmp_path, PYTHONPATH=str(installed)
    ).strip()
    assert not list(tmp_path.iterdir()), "doctor leaves no file"
    assert __version__ in run(Path(sys.executable).with_name("worklog"), "--version", cwd=tmp_path)


def test_the_installed_wheel_runs_its_own_core_without_a_compiler(installed, fast_cc, tmp_path):
    """In a read-only folder, too.

    Where the wheel lacks what fits its sources, the error names the command.
    """
    code = "from worklog.emulator.core.native import library; print(library()._name)"
    bare = {"PYTHONPATH": str(installed), "PATH": "", "WORKLOG_CACHE": str(tmp_path / "none")}
    used = Path(run(sys.executable, "-c", code, cwd=tmp_path, **bare).strip())
    assert used.parent == installed / "worklog/emulator/core" and not list(tmp_path.iterdir())
    changed = tmp_path / "changed"
    shutil.copytree(installed / "worklog", changed / "worklog")
    with (changed / "worklog/emulator/core/core.c").open("a") as source:
        source.write("/* changed */\n")
    ask = f"import sys; sys.modules['ziglang'] = None; {code}"
    bare["PYTHONPATH"] = str(changed)
    done = subprocess.run(
        [sys.executable, "-c", ask],
        cwd=tmp_path,
        env=os.environ | bare,
        capture_output=True,
        text=True,
    )
    assert (
        done.returncode and "install a C compiler" in done.stderr and "pip install" in done.stderr
    )
    made = {**bare, "PATH": os.environ["PATH"], "CC": fast_cc}
    assert (
        Path(run(sys.executable, "-c", code, cwd=tmp_path, **made).strip()).parent
        == tmp_path / "none"
    )


def test_the_build_needs_the_standard_library_alone_and_hashes_what_it_reads():
    """Build isolation has neither NumPy nor this package."""
    code = f"""
import runpy, sys
names = runpy.run_path({str(ROOT / "worklog/emulator/core/build.py")!r})
print(len(runpy.run_path(str(names["TABLE"]))["code"]()), names["TABLE"])
print(*(str(getattr(module, "__file__", None)) for module in sys.modules.values()))
"""
    counted, loaded = run(sys.executable, "-I", "-S", "-c", code, cwd=ROOT).splitlines()
    size, *tables = counted.split()
    assert int(size) > 1000 and {path for path in loaded.split() if path.startswith(str(ROOT))} <= {
        *tables
    }


def test_a_wheel_for_another_platform_and_a_build_without_a_compiler_ask_for_zig(monkeypatch):
    hook = Core(str(ROOT), {}, None, None, "", "wheel")
    assert hook.dependencies() == []
    monkeypatch.setenv("WORKLOG_WHEEL", "macosx_11_0_arm64")
    [pinned] = hook.dependencies()
    assert pinned in (ROOT / "constraints.txt").read_text(encoding="utf-8").splitlines()
    monkeypatch.delenv("WORKLOG_WHEEL")
    monkeypatch.setenv("PATH", "")
    assert hook.dependencies() == ["ziglang>=0.13"]


@pytest.mark.parametrize(("wheel", "count"), [("", 2), ("manylinux_2_28_x86_64", 3)])
def test_a_wheel_for_a_named_platform_has_the_core_for_browsers(
    monkeypatch, tmp_path, wheel, count
):
    build = {
        "variants": lambda kind: [("fast",), ()],
        "machine": lambda: "x86_64",
        "platform_tag": lambda: "linux_x86_64",
        "zig_folder": lambda cache: cache / "zig",
        "compile_core": lambda folder, flags, wheel, zig_cache: folder / f"core{len(flags)}.so",
        "compile_wasm": lambda folder, zig_cache: folder / "core.wasm",
    }
    hook = Core(str(ROOT), {}, None, None, "", "wheel")
    monkeypatch.setattr(hook, "_wheel_and_build", lambda: (wheel, build))
    monkeypatch.setenv("WORKLOG_CACHE", str(tmp_path))
    data = {"force_include": {}}
    hook.initialize("standard", data)
    hook.finalize("standard", data, "")
    assert len(data["force_include"]) == count
    has_wasm = "worklog/emulator/core/core.wasm" in data["force_include"].values()
    assert has_wasm == bool(wheel)


def test_the_installed_wheel_writes_its_notebooks_and_says_how_to_open_them(installed, tmp_path):
    said = run(
        sys.executable,
        "-m",
        "worklog",
        "new",
        "notebooks",
        "DIR",
        cwd=tmp_path,
        PYTHONPATH=str(installed),
    )
    folder = tmp_path / "DIR"
    written = {
        path.relative_to(folder).as_posix(): path.read_bytes() for path in folder.rglob("*.*")
    }
    assert written == {name: (ROOT / "notebooks" / name).read_bytes() for name in NOTEBOOKS}
    command = shlex.split(said.splitlines()[-1].removeprefix("next: "))
    assert command[-1] == "DIR" and run(*command[:-1], "--version", cwd=tmp_path).strip()
    example = folder / "examples" / "01_time_a_rung.py"
    shown = run(
        sys.executable, example, cwd=tmp_path, PYTHONPATH=str(installed), WORKLOG_SOURCE="recorded"
    )
    assert "recorded · NVIDIA H200" in shown


def test_a_hint_to_install_is_a_command_that_pip_carries_out(installed, release, tmp_path):
    """gemm-worklog is on no index, so a hint names the checkout or the wheel."""
    ask = (
        sys.executable,
        "-c",
        "from worklog.errors import install_command; print(install_command('sass'))",
    )
    by_wheel = run(*ask, cwd=tmp_path, PYTHONPATH=str(installed))
    inside = run(*ask, cwd=ROOT)
    outside = run(*ask, cwd=tmp_path)
    assert (
        shlex.split(by_wheel)[-1] == f"gemm-worklog[sass] @ {next(release.glob('*.whl')).as_uri()}"
    )
    assert (shlex.split(inside)[-1], shlex.split(outside)[-1]) == (".[sass]", f"{ROOT}[sass]")
    for hint in (by_wheel, outside):
        words = [
            str(Path(sys.executable).with_name("pip")),
            *(word for word in shlex.split(hint)[1:] if word != "-e"),
        ]
        said = run(
            *words, "--dry-run", "--no-deps", "--no-index", "--no-build-isolation", cwd=tmp_path
        )
        assert f"Would install gemm-worklog-{__version__}" in said


def test_the_package_loads_nothing_heavy_and_pandas_only_for_a_data_frame(tmp_path):
    (tmp_path / "mine.cu").write_text(
        (ROOT / "worklog/cli/template.cu").read_text(encoding="utf-8")
    )
    code = """
import sys, worklog, worklog.kernel.nvrtc, worklog.emulator
heavy = {"cupy", "torch", "cuda", "pynvml", "matplotlib", "pandas", "IPython", "ipywidgets"}
heavy.add("scipy")
print("loaded:", *heavy & set(sys.modules), "!")
from worklog.cli import main
for words in ("run", "run --json", "check mine.cu --quick", "ablate naive", "peers", "show"):
    main(words.split(), standalone_mode=False)
    print(f"{words}: pandas is loaded" if "pandas" in sys.modules else "")
"""
    said = run(
        sys.executable,
        "-c",
        code,
        cwd=tmp_path,
        WORKLOG_SOURCE="recorded",
        WORKLOG_HOME=str(tmp_path),
    )
    assert said.startswith("loaded: !") and "pandas is loaded" not in said


def test_every_dependency_is_pinned_inside_its_range_to_a_plain_public_version():
    lines = (ROOT / "constraints.txt").read_text(encoding="utf-8").splitlines()
    pairs = (line.split("==") for line in lines if not line.startswith("#"))
    pins = {canonicalize_name(name): version for name, version in pairs}
    assert all(
        re.fullmatch(r"[0-9]+(\.[0-9]+)*(\.post[0-9]+)?", version) for version in pins.values()
    )
    for wanted in map(
        Requirement, [*PROJECT["dependencies"], *PROJECT["optional-dependencies"]["dev"]]
    ):
        assert wanted.specifier.contains(pins[canonicalize_name(wanted.name)]), wanted


def test_make_alone_names_every_target():
    targets = re.findall(
        r"^([a-z-]+):.* ## ", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE
    )
    assert re.findall(r"^make ([a-z-]+) +\S", run("make", cwd=ROOT), re.MULTILINE) == targets != []


@pytest.mark.parametrize(
    ("terminal", "shown"),
    [(True, ["packages: 2; Downloading torch", "Installing 3 packages"]), (False, [])],
)
def test_make_shows_what_pip_is_at_in_a_terminal_only(tmp_path, terminal, shown):
    log = tmp_path / "install.log"
    found = (
        "Collecting numpy>=2 (from x)\\n  Downloading numpy.whl (16 MB)\\nCollecting torch\\n "
        " Downloading torch"
    )
    recipe = (
        f"progress: ; @$(show_progress); printf '{found}' >{log}; sleep 1.5;"
        f" printf '\\nInstalling collected packages: a, b, c\\n' >>{log}; sleep 1.5"
    )
    command = ["make", "--eval", recipe, f"VENV={tmp_path}", "progress"]
    line = shlex.join(command)
    words = ["script", "-qec", line, "/dev/null"] if terminal else command
    done = subprocess.run(words, cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    printed = done.stdout + done.stderr
    assert all(words in printed for words in shown) and bool(printed) is terminal
    assert not terminal or printed.rstrip().endswith("\x1b[K"), "the line is cleared"
