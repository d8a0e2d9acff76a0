"""No mistake ends in a traceback: what is printed says what is wrong and what to do.

A mistake is a line as a user types it, variables of the environment before it. Usage errors come
from click, with the command's usage; others are one line.
"""

import os
import re
import shlex
import sys
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from tests.cli.conftest import worklog
from tests.conftest import WHY
from tests.helpers import SIGNATURE
from worklog.cli import COMMANDS, main
from worklog.errors import Interrupted
from worklog.kernel.disk_cache import cached
from worklog.runner import execute, sources
from worklog.runs import Run
from worklog.runs import files as result_files
from worklog.runs.sources import runs_dir

LAUNCH = "--grid '(N + 31) // 32, (M + 31) // 32' --block 32,32"
KERNEL = f"__global__ void sgemm({SIGNATURE}) {{}}\n"
TEMPLATE = f"template <int BM> __global__ void gemm({SIGNATURE}) {{}}\n"
# Files in the folder in which the commands below are typed; a folder is None.
FILES: dict[str, str | bytes | None] = {
    "taken": "no folder",
    "folder": None,
    "kept.json": "precious",
    "mine.cu": KERNEL,
    "naive.cu": KERNEL,
    "my kernel.cu": KERNEL,
    "empty.cu": "",
    "host.cu": "int main() { return 0; }\n",
    "two.cu": KERNEL + KERNEL.replace("sgemm", "other"),
    "double.cu": KERNEL.replace("float", "double"),
    "typo.cu": KERNEL.replace("{}", "{ int x = ; }"),
    "template.cu": f"{TEMPLATE}void f({SIGNATURE}) {{\n"
    "gemm<16><<<1, 16>>>(M, N, K, alpha, A, B, beta, C);\n"
    "gemm<32><<<1, 32>>>(M, N, K, alpha, A, B, beta, C); }\n",
    "binary.cu": bytes(range(256)),
    "utf16.cu": KERNEL.encode("utf-16"),
    "mine.py": "def f(*_): pass\n",
    "bench.py": '\nimport worklog\n@worklog.bench("N=1,2")\ndef softmax(state): pass\n',
    "broken.py": "def f(:\n",
    "raising.py": "raise ValueError('mine')\n",
    "empty.json": "",
    "text.json": "no run",
    "list.json": "[1, 2]",
    "other.json": '{"a": 1}',
    "cut.json": '{"a": 1',
    "binary.json": b"\xff\xfe\x00",
    "table.csv": "kernel,us\nnaive,1\n",
}
LONG = "x" * 300


@pytest.fixture
def files(tmp_path, monkeypatch):
    """Return the folder that a user has. What it holds must stay as it is."""
    folder = tmp_path / "work"
    folder.mkdir()
    for name, content in FILES.items():
        if content is None:
            (folder / name).mkdir()
        else:
            (folder / name).write_bytes(content.encode() if isinstance(content, str) else content)
    os.mkfifo(folder / "pipe")
    monkeypatch.chdir(folder)
    return folder


def held(folder: Path) -> dict[str, bytes | None]:
    """Return what a folder holds."""
    return {
        str(path.relative_to(folder)): path.read_bytes() if path.is_file() else None
        for path in sorted(folder.rglob("*"))
        if "__pycache__" not in path.parts  # which Python writes for a file that it imports
    }


NO_GPU = f"no GPU to measure on: {WHY}; "
HOST_FUNCTION = f"the emulator runs .cu files only, and a host function needs a GPU: {WHY}"
EXISTS = "kept.json exists already: give --out another name, or remove it first$"
MISTAKES = [
    # No command, or another one
    ("chek", r"No such command 'chek'. \(did you mean check\?\)"),
    ("Check mine.cu", r"No such command 'Check'. \(did you mean check\?\)"),
    ("mine.cu", "No such command 'mine.cu'"),
    ("--bogus", "No such option"),
    ("new \udcfc.cu", "an argument isn't UTF-8: rename the file, or set LC_ALL=C.UTF-8"),
    # Missing and spare arguments
    ("check", "Missing argument 'FILE.cu"),
    ("inspect", r"Missing argument 'RUNG\|FILE.cu'"),
    ("profile", r"Missing argument 'RUNG\|FILE.cu'"),
    ("bench", "Missing argument 'FILE.py'"),
    ("compare h200", "Missing argument 'NEW"),
    ("ablate", "Missing argument 'RUNG'"),
    ("sweep", "Missing argument 'RUNG'"),
    ("new", "Missing argument 'FILE.cu"),
    ("check naive shared", "naive isn't a .cu file or a folder: check it alone"),
    ("inspect naive shared", r"Got unexpected extra argument \(shared\)"),
    ("compare a b c", r"Got unexpected extra argument \(c\)"),
    ("show h200 4096", r"Got unexpected extra argument \(4096\)"),
    ("doctor x", r"Got unexpected extra argument \(x\)"),
    ("figures mine.json", r"Got unexpected extra argument \(mine.json\)"),
    ("log naive", r"Got unexpected extra argument \(naive\)"),
    ("figures --out", "Option '--out' requires an argument"),
    ("run naive --set", "Option '--set' requires an argument"),
    ("run naive --json=yes", "Option '--json' does not take a value"),
    # Options of other commands, and settings given as options
    (
        "check mine.cu --l2 warm",
        (
            "No such option --l2. It is a setting of the harness: give --set l2=warm to a command "
            "that times"
        ),
    ),
    (
        "run naive --l2=warm",
        r"No such option --l2. It is a setting of the harness: give --set l2=warm\.$",
    ),
    (
        "run naive --budget-s 4",
        r"No such option --budget-s. It is a setting of the harness: give --set budget_s=4\.$",
    ),
    (
        "show h200 --timer",
        "No such option --timer. It is a setting of the harness: give --set timer=VALUE to",
    ),
    ("run naive --sizes 512", r"No such option --sizes. Did you mean --size\?"),
    ("run naive --shape 512", r"No such option --shape. Did you mean --shapes\?"),
    ("show h200 --size 512", r"No such option --size. It is an option of run, .*check, sweep\."),
    ("article --run h200", r"No such option --run. It is an option of figures, site\."),
    ("inspect mine.cu --set l2=warm", "No such option --set. It is an option of .*run, bench,"),
    ("show --bogus", r"No such option --bogus\.$"),
    ("run --bogus", r"No such option --bogus\.$"),
    # Numbers
    ("check mine.cu --seed -1", "'--seed': -1 is not in the range x>=0"),
    ("check mine.cu --seed 1.5", "'--seed': '1.5' is not a valid integer"),
    ("check mine.cu --budget 0", "'--budget': 0 is not in the range x>=1"),
    (
        "check mine.cu --budget 99999999999999999999",
        "'--budget': 99999999999999999999 is too large",
    ),
    ("check mine.cu --shared -1", "'--shared': -1 is not in the range x>=0"),
    ("check mine.cu --size 0", "size M = 0 is not a positive integer: give one such as 4096"),
    ("check mine.cu --size -5", "size M = -5 is not a positive integer"),
    ("check mine.cu --size 1e3", "size '1e3' is not a number: give one such as 4096"),
    ("check mine.cu --size nan", "size 'nan' is not a number"),
    ("check mine.cu --size 64x64", "size '64x64' has 2 parts: give one such as 4096, or M x N x K"),
    ("check mine.cu --size 99999999999999999999", "size '99999999999999999999' has more digits"),
    ("run naive --size 256,,512", "size '' is not a number"),
    ("run best --shapes 0", "'--shapes': 0 is not in the range 1<=x<=1000"),
    ("exploits --seeds 1001", "'--seeds': 1001 is not in the range 1<=x<=1000"),
    ("log --keep -1", "'--keep': -1 is not in the range x>=0"),
    (
        "compare h200 h200 --threshold nan",
        "'--threshold': 'nan' is not a number: give one such as 2",
    ),
    ("compare h200 h200 --threshold inf", "'--threshold': inf is not in the range"),
    ("compare h200 h200 --threshold 0", "'--threshold': 0.0 is not in the range"),
    ("compare h200 h200 --threshold lots", "'--threshold': 'lots' is not a valid number"),
    ("new --rung 30 x", "'--rung': 30 is not in the range 1<=x<=29"),
    ("sweep autotuned --axis BM=64 --trials 0", "'--trials': 0 is not in the range x>=1"),
    # Kernels that can't be read, or aren't clear
    (
        "check none.cu",
        r"cannot read none.cu: No such file or directory; name another .*: worklog new mine.cu",
    ),
    ("check mien.cu", r"cannot read mien.cu: .* \(did you mean mine.cu\?\)"),
    ("check folder", "folder has no .cu file: name another folder, or a file"),
    ("inspect folder", "cannot read folder: Is a directory; name a .cu file in it"),
    ("check pipe", "cannot read pipe: it is a pipe or a device, not a file; name another"),
    ("check /dev/null", "cannot read /dev/null: it is a pipe or a device"),
    ("check binary.cu", "cannot read binary.cu: it isn't text; save it as UTF-8"),
    ("check utf16.cu", "cannot read utf16.cu: it isn't text; save it as UTF-8"),
    (
        "check empty.cu",
        "empty.cu has no __global__ function: write one, or start from: worklog new mine.cu",
    ),
    ("inspect host.cu", "host.cu has no __global__ function"),
    ("inspect two.cu", r"two.cu has 2 kernels \(sgemm, other\): name one with --entry"),
    (
        "check double.cu",
        r"double.cu: sgemm takes double alpha: the gate passes float.*: give the kernel these",
    ),
    (
        "inspect template.cu",
        (
            r"template.cu: gemm is a template of BM: .* --entry 'gemm<16>' \(.* gemm<16> and "
            r"gemm<32>\)"
        ),
    ),
    (
        "check mine.cu",
        "sgemm needs a launch, and mine.cu doesn't state one: give .*--grid .* --block 32,32",
    ),
    ("inspect typo.cu", "typo.cu:1: expected an expression"),
    ("check ''", "'' names no kernel: name a rung or a file"),
    ("run naive ' , '", "' , ' names no kernel: name a rung or a file"),
    ("check matmul", "there is no rung 'matmul': name a .cu file, or choose from naive,"),
    ("check naiv", r"there is no rung 'naiv' \(did you mean naive\?\)"),
    (
        "check cuBLAS",
        "cuBLAS has no CUDA source here: `worklog run cuBLAS` times it; name a rung or a .cu file",
    ),
    ("inspect torch", "torch has no CUDA source here"),
    ("profile CUBLAS", "CUBLAS has no CUDA source here"),
    (
        "check cublaslt",
        "cublaslt has no CUDA source here: `worklog run warptiled --against cublaslt` times it",
    ),
    ("run cublaslt", r"cuBLASLt is a baseline: name a kernel, as in .* --against cublaslt"),
    (
        "run naive --against cublaslt:0",
        "cuBLASLt:0: 0 isn't a number of algorithms: give 1 to 100, or cuBLASLt alone for 16",
    ),
    (f"check {LONG}.cu", r"cannot use x+.cu: File name too long; name another place"),
    (
        "run NAIV",
        (
            r"there is no kernel 'NAIV' \(did you mean naive\?\): name a file, or naive, "
            r".*, cuBLAS, "
            r"cuBLASLt, torch"
        ),
    ),
    ("run warptiled --against toch", r"there is no kernel 'toch' \(did you mean torch\?\)"),
    ("run warptiled --against ,", "--against ',' names no kernel: name one, or omit it"),
    ("check mine.py", "cannot run mine.py: name its function too, as mine.py:function"),
    ("run mine.cu:f", "cannot read 'mine.cu:f': .* of a .cu file, name the kernel with --entry"),
    (
        "inspect mine.py:f",
        "f is a host function: give a .cu file or a rung",
    ),
    ("profile mine.py:f", "f is a host function: profile its program with ncu itself"),
    ("check mine.py:f", HOST_FUNCTION),
    ("check mine.py:f --problem softmax", HOST_FUNCTION),
    ("check none.py:f", "cannot read .*none.py: No such file"),
    # Launches
    (
        "check mine.cu --grid N --block 0",
        "cannot read the block '0': give threads along x, y and z: 256 or 32,8",
    ),
    (
        "check mine.cu --grid 'Q / 3' --block 32",
        "cannot read 'Q' in 'Q / 3': use integers, .*M, N, K",
    ),
    ("check mine.cu --grid 'N / 0' --block 32", "cannot read 'N / 0': .*division by zero"),
    (
        "check mine.cu --grid 1,2,3,4 --block 32",
        "cannot read the grid '1, 2, 3, 4': give blocks along x, y and z",
    ),
    (f"check mine.cu --entry other {LAUNCH}", "mine.cu has no kernel other: its kernels are sgemm"),
    (
        f"check mine.cu --args A,B {LAUNCH}",
        "--args A,B: mine.cu declares 8 parameters, and 2 are",
    ),
    (f"check mine.cu --args A,B,X {LAUNCH}", "--args A,B,X: 'X' is none of M, N, K"),
    (
        f"check mine.cu --domain 'M is 5' {LAUNCH}",
        "cannot read the domain 'M is 5': give rules such as",
    ),
    (f"check mine.cu --domain '' {LAUNCH}", "--domain is empty: give SHAPES, or omit it"),
    (f"check mine.cu --class fp8 {LAUNCH}", "there is no precision class 'fp8': choose from fp32"),
    ("check mine.cu --arrays numpy", "--arrays is for a host function"),
    (f"check mine.cu -I none {LAUNCH}", "cannot read -I none: there is no such folder"),
    (f"check mine.cu -D 1=2 {LAUNCH}", "cannot read -D '1=2': write NAME or NAME=VALUE"),
    (
        f"check mine.cu --size 40000 {LAUNCH}",
        "size 40000 on the emulator needs about .* are free: use a smaller size",
    ),
    ("check naive --grid 4", "--grid is for a .cu file: a rung has its own"),
    ("run naive --grid N", "--grid is for a .cu file: a rung has its own"),
    ("run shared --size 100 --preview", "size 100 is outside shared's domain"),
    ("inspect naive --arch sm_1", "cannot compile for 'sm_1': choose from sm_75"),
    # What the recording lacks, and what needs a GPU
    (
        f"run mine.cu {LAUNCH}",
        f"{NO_GPU}`worklog check mine.cu` checks it .*, `worklog inspect mine.cu`",
    ),
    (f"run 'my kernel.cu' {LAUNCH}", f"{NO_GPU}`worklog check 'my kernel.cu'` checks it"),
    (f"run mine.cu --against torch,naive {LAUNCH}", f"{NO_GPU}`worklog check mine.cu`"),
    (
        f"profile mine.cu {LAUNCH}",
        f"{NO_GPU}`worklog check mine.cu` checks it on the emulator, `worklog inspect",
    ),
    ("run torch", f"{NO_GPU}torch is a host function, which only a GPU runs: name a .cu file"),
    ("run mine.py:f", f"{NO_GPU}mine.py:f is a host function, which only a GPU runs"),
    (
        "run mine.cu --problem softmax",
        f"{NO_GPU}`worklog check mine.cu --problem softmax` checks it on the emulator",
    ),
    ("bench bench.py", f"{NO_GPU}--list shows"),
    ("peers --out made.json", f"{NO_GPU}omit --bench and --out"),
    (
        "run warptiled --size 128",
        r"warptiled at 128 is not in the recorded run \(it holds sizes 256, ",
    ),
    (
        "run naive --set timer=graph --set l2=warm",
        "--set needs a live measurement, and there is no GPU here: omit it",
    ),
    ("run naive --out new.json", "--out needs a live measurement"),
    ("run naive --energy", "--energy needs a live measurement, and there is no GPU here: omit it"),
    ("doctor --energy", f"{NO_GPU}`worklog doctor` without --energy needs none"),
    (f"run naive --against mine.cu {LAUNCH}", "--against needs a live measurement"),
    ("run naive --against cublaslt", "--against needs a live measurement, and there is no GPU"),
    ("doctor --calibrate --set clocks=locked", "--set needs a live measurement"),
    ("ablate vectorized --set l2=warm", "--set needs a live measurement"),
    ("profile naive --out new.json", "--out needs a live measurement"),
    ("sweep tiles_2d --axis BM=64 --set l2=warm", "--set needs a live measurement"),
    ("sweep tiles_2d --axis BM=64 --trials 1", "--trials needs a live measurement"),
    (
        "sweep autotuned --axis BM=64 --size 1024",
        "no such tile of autotuned at 1024 was recorded: measure on a GPU",
    ),
    ("WORKLOG_SOURCE=live run warptiled --size 100", "size 100 is outside warptiled's domain"),
    ("WORKLOG_SOURCE=live peers", f"{NO_GPU}unset WORKLOG_SOURCE=live"),
    (
        "WORKLOG_SOURCE=live show",
        "WORKLOG_SOURCE=live, but .* holds no such run: measure one with `worklog run`",
    ),
    (
        "WORKLOG_SOURCE=guessed exploits",
        "WORKLOG_SOURCE=guessed is not a source: set it to live or recorded",
    ),
    # Settings of the harness
    ("run naive --set l2", "cannot read --set l2: give setting=value, such as l2=warm"),
    ("run naive --set l3=warm", "there is no setting 'l3': choose from clocks, timer, l2"),
    (
        "run naive --set l2=wram",
        r"l2 = 'wram' is not a setting \(did you mean warm\?\): choose from flush",
    ),
    ("run naive --set precision=nan", "precision = nan must be from 1e-06 to 0.999"),
    ("run naive --set precision=abc", "cannot read --set precision=abc: give a number"),
    ("run naive --set l2=warm --set l2=warm", "--set l2=warm: l2 is set twice; give it one value"),
    ("doctor --set clocks=locked", "--set takes only clocks here, with --calibrate"),
    # Options that contradict each other, or need another one
    ("check mine.cu --problem softmax --size 64", "--size is for the ladder's SGEMM: omit it"),
    ("check mine.cu --problem softmax --grid 1", "--grid is for the ladder's SGEMM: omit it"),
    ("run --problem softmax", "--problem needs a solution"),
    ("check mine.cu --problem sofmax", r"there is no problem 'sofmax' \(did you mean softmax\?\)"),
    ("check mine.cu --dtype float16", "--dtype needs --problem: the formats"),
    ("check mine.cu --dtype tf32", "--dtype needs --problem: for float matrices.*--class tf32"),
    ("run --case 'n=*'", "--case needs --problem"),
    ("run --shapes 6 --size 512", "--shapes draws the sizes"),
    (
        "run --shapes 3",
        "--shapes draws any sizes, .*: name kernels, as in worklog run best --shapes 5",
    ),
    ("run naive shared --against-revision HEAD", "--against-revision takes one kernel"),
    (
        "doctor --settings --calibrate",
        "--settings, --calibrate and --energy each show something else: omit all but one",
    ),
    ("check naive --watch", "--watch needs a file"),
    ("exploits --emulate --only ' , '", "--only names no exploit"),
    (
        "exploits --emulate --only zero",
        r"there is no exploit zero \(did you mean zeros\?\): .* exploits lists all$",
    ),
    (
        "ablate mine.cu",
        (
            "ablate takes a rung: of a file, bias one setting, as in worklog run mine.cu --set "
            "l2=warm$"
        ),
    ),
    ("ablate nothing", "there is no rung 'nothing': choose from naive"),
    ("peers --axis N=1", "--axis is for declared benchmarks"),
    ("show --samples", "--samples is for --csv and --parquet: name a file"),
    ("log --keep 2 --kernel naive", "--keep counts all runs: omit --kernel"),
    ("log --since 2026-9", "'2026-9' isn't a UTC day, month or time: write it as 2026-11-27"),
    ("log --since 2026-13", "'2026-13' isn't a UTC day, month or time"),
    ("log --until yesterday", "'yesterday' isn't a UTC day, month or time"),
    # Sweeps and benchmarks
    ("sweep warptiled", "worklog sweep warptiled takes --axis NAME=VALUES, such as"),
    ("sweep best --axis BM=64", "worklog sweep takes any rung but best"),
    (
        "sweep mine.cu --axis BM=64",
        "sweep takes a rung: .*, as in worklog run mine.cu -D BM=64",
    ),
    (
        "sweep naive --axis BM=64",
        r"no tile is left to measure \(more than 1024 threads per block\)",
    ),
    ("sweep autotuned --axis BM", r"cannot read --axis 'BM': give NAME\[KIND\]=VALUES"),
    ("sweep autotuned --axis XX=64", "autotuned has no tile parameter XX: choose from BM"),
    ("sweep autotuned --axis BM=big", "axis BM: 'big' is neither a whole number nor a range"),
    ("sweep autotuned --axis BM=-64", "axis BM: tile parameters are whole numbers from 1 on"),
    (
        "sweep autotuned --axis BM=64 --where 'BM <'",
        "cannot read --where 'BM <': compare two sides, as in",
    ),
    ("sweep autotuned --axis BM=64 --where 'XX < 5'", "cannot read 'XX': use integers, BM"),
    ("sweep autotuned --axis BM=64 --strategy guess", "'guess' is not one of 'exhaustive'"),
    ("bench none.py", "cannot read .*none.py: No such file or directory"),
    ("bench mine.cu", "mine.cu isn't a Python file: give one that declares benchmarks"),
    ("bench mine.py", r"mine.py declares no benchmark: write @worklog.bench\(\) above a function"),
    ("bench broken.py", "cannot load .*broken.py: SyntaxError"),
    ("bench raising.py", "cannot load .*raising.py: ValueError: mine"),
    ("bench bench.py --list --axis X=1", "--axis X=1: no benchmark has an axis X"),
    ("bench bench.py --list -b nothing", "no benchmark matches 'nothing': it has softmax"),
    # Runs
    (
        "show nothing",
        r"there is no run 'nothing': give a file, .* recording \(h100_drawn, .*, or REVISION",
    ),
    ("show h20", r"there is no run 'h20' \(did you mean h200\?\)"),
    ("show folder", "folder is a folder, not a run: give the file of a run"),
    ("show pipe", "pipe is a pipe or a device, not a run"),
    (
        "show mine.cu",
        "mine.cu is not a run: it isn't JSON: `worklog run mine.cu` times this kernel and saves "
        "a run",
    ),
    ("show table.csv", "table.csv is not a run: it isn't JSON: measure again, or give a file"),
    ("show empty.json", "empty.json is not a run: it is empty"),
    ("show binary.json", "binary.json is not a run: it isn't UTF-8 text"),
    ("show list.json", "list.json is not a run: its first line isn't a run's head: measure again"),
    ("show other.json", "other.json is not a run: its first line isn't a run's head"),
    ("show cut.json", "cut.json is not a run: its first line isn't a run's head"),
    (
        "compare mine.cu naive.cu",
        "compare takes saved runs, .* `worklog run naive.cu --against mine.cu`",
    ),
    ("compare h200 ,", "name a run on each side"),
    ("figures --run mine.cu", "mine.cu is not a run"),
    ("site --run text.json", "text.json is not a run: it isn't JSON"),
    ("site --grid none.json", "there is no run 'none.json'"),
    # Places to write to
    ("run naive --out kept.json", EXISTS),
    ("show --csv kept.json", "kept.json exists already: give --csv another name"),
    ("show --csv ''", "'--csv': it is empty: give a name"),
    ("figures --out ''", "'--out': it is empty: give a name"),
    (
        "show h200 --csv new.txt --markdown new.txt",
        "--csv and --markdown name one file, new.txt: give each its own",
    ),
    ("show h200 --csv folder", "'--csv': File 'folder' is a directory"),
    ("show h200 --markdown none/h200.md", "there is no folder none for --markdown: make it"),
    ("compare h200 h200 --markdown kept.json", "kept.json exists already: give --markdown another"),
    ("compare h200 h200 --chart taken/x", "cannot write taken/x: .*; give --chart another name"),
    (
        "peers --out taken/run.json",
        "cannot write taken/run.json: taken: Not a directory; give --out another name$",
    ),
    (
        "article --out taken/figures",
        "cannot write figures into taken/figures: .*; give another folder",
    ),
    ("figures --out mine.cu", "'--out': Directory 'mine.cu' is a file"),
    (
        "site --out taken/site",
        "cannot write site into taken/site: taken: .*; give another folder with --out",
    ),
    (
        "inspect mine.cu --html mine.cu",
        "--html writes a web page: give a name that ends in .html, not mine.cu$",
    ),
    (
        "inspect mine.cu --html taken/x.html",
        "cannot write taken/x.html: taken: .*; give --html another file",
    ),
    ("inspect mine.cu --out taken", "'--out': Directory 'taken' is a file"),
    (
        "inspect mine.cu --out taken/ptx",
        "cannot write taken/ptx: taken: .*; give --out another folder",
    ),
    ("new mine.cu", "mine.cu exists already: give another name$"),
    ("new mine", "cannot write 'mine': give a name that ends in .cu"),
    ("new ''", "cannot write '': give a name that ends in .cu"),
    ("new softmax", "softmax needs a folder: worklog new softmax DIR"),
    ("new notebooks", "notebooks needs a folder: worklog new notebooks DIR"),
    ("new notebooks taken/below", "taken exists already: give another folder$"),
    (
        "new none/mine.cu",
        "cannot write none/mine.cu: No such file or directory; make the folder none",
    ),
    ("new other.cu --dtype float16", "--dtype is for a problem"),
    (
        "new softmax DIR --dtype float128",
        r"softmax: there is no dtype 'float128' \(did you mean float32\?\)",
    ),
    ("new --rung 27 'A b'", "cannot name a rung 'A b': start with a-z"),
    ("new --rung 27 naive", "rung 1 is naive already"),
    ("new staged DIR --rung 20", "--rung takes a name alone"),
]


def typed_in_a_shell(line: str, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Type a line: variables of the environment, then the words behind `worklog`."""
    words = shlex.split(line)
    while words and re.match("[A-Z_]+=", words[0]):
        name, _, value = words.pop(0).partition("=")
        monkeypatch.setenv(name, value)
    return worklog(*words)


@pytest.mark.parametrize(("line", "complaint"), MISTAKES)
def test_a_mistake_ends_at_once_with_2_and_says_what_is_wrong_and_what_to_do(
    files, monkeypatch, line, complaint
):
    def minutes(*_: Any, **__: Any) -> None:
        raise AssertionError("minutes of work for a mistake")

    for work in ("worklog.runner.execute.run_child", "worklog.peers.exploits.ExploitGate"):
        monkeypatch.setattr(work, minutes)
    monkeypatch.setattr("worklog.site.build.chapters", minutes)
    before = held(files)
    result = typed_in_a_shell(line, monkeypatch)
    assert (result.exit_code, result.stdout) == (2, ""), result.output
    assert held(files) == before and not runs_dir().exists()
    said = [text for text in result.stderr.splitlines() if not text.startswith("· ")]
    if said[0].startswith("Usage: ") or said[0].startswith("Error: "):
        assert re.search(complaint, said[-1].removeprefix("Error: ")), result.stderr
    else:
        last = next(text for text in said if text.startswith("worklog: "))
        assert re.match(complaint, last.removeprefix("worklog: ")), result.stderr


def test_mistakes_of_every_command_are_in_the_table():
    typed = {word for line, _ in MISTAKES for word in shlex.split(line)}
    assert len(MISTAKES) >= 80 and {*COMMANDS} - typed == {"journal"}, "which takes no argument"


@pytest.mark.parametrize(
    ("error", "exit_code", "said"),
    [
        (KeyboardInterrupt(), 130, "worklog: interrupted: nothing was saved\n"),
        (
            Interrupted("interrupted: 3 of 9 measurements are kept"),
            130,
            "worklog: interrupted: 3 of 9 .*\n",
        ),
        (AssertionError("a bug"), 1, ""),
        (PermissionError(13, "Permission denied"), 1, ""),
    ],
)
def test_an_interrupt_is_one_line_and_a_bug_keeps_its_traceback(
    monkeypatch, error, exit_code, said
):
    def carry_out(*_: Any, **__: Any) -> Run:
        raise error

    monkeypatch.setattr(execute, "carry_out", carry_out)
    monkeypatch.setattr(sources, "live_wanted", lambda: True)
    monkeypatch.setattr(result_files, "WRITTEN", {})
    result = CliRunner().invoke(main, ["run"])
    assert (result.exit_code, result.stdout) == (exit_code, "") and re.fullmatch(
        said, result.stderr
    )
    assert (result.exception is error) is (exit_code == 1)


def test_an_interrupt_names_what_was_saved_for_the_user_and_no_entry_of_a_cache(
    monkeypatch, tmp_path
):
    def interrupted() -> None:
        result_files.write_text(tmp_path / "mine.txt", "mine")
        cached(Path(sys.executable), b"an order", lambda: b"an answer")
        raise KeyboardInterrupt

    monkeypatch.setattr(result_files, "WRITTEN", {})
    monkeypatch.setattr("worklog.cli.figures.journal_text", interrupted)
    result = CliRunner().invoke(main, ["journal"])
    assert (result.exit_code, result.stderr) == (
        130,
        f"worklog: interrupted: saved: {tmp_path / 'mine.txt'}\n",
    )


@pytest.mark.parametrize(
    ("files", "said"),
    [
        ([], "nothing was saved"),
        (["a"], "saved: a"),
        (["a", "b"], "2 files were saved, the last one is b"),
    ],
)
def test_files_that_were_saved_are_counted_and_the_last_is_named(files, said, monkeypatch):
    monkeypatch.setattr(result_files, "WRITTEN", dict.fromkeys(map(Path, files)))
    assert result_files.written_so_far() == said
