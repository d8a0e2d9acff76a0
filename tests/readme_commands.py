"""The README's commands as a user types them on a GPU, with what each must print.

tests/test_readme.py holds that no command of the README is missing here,
tests/gpu/test_gpu_commands.py types them.
"""

import re
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[1]
README = ROOT / "README.md"
LIVE = "live · "
EMULATED = "emulated · "
RECORDED = "recorded · "


@dataclass(frozen=True)
class Command:
    """One command of the README."""

    written: str  # in the README
    label: str = ""  # what its output contains
    typed: str = ""  # with names in place of DIR, OLD and NEW; "": as it is written
    exit_code: int = 0
    in_checkout: bool = False  # typed in a copy of the checkout, else in a folder of its own

    @property
    def words(self) -> str:
        """What is typed."""
        return self.typed or self.written


# In an order in which each finds what it needs: `compare` needs saved runs, `figures` the
# article's.
COMMANDS = [
    Command("worklog doctor", "NVIDIA"),
    Command("worklog doctor --energy", "within the tolerance"),
    Command("worklog new mine.cu", "written: mine.cu"),
    Command("worklog check mine.cu --emulate", EMULATED),
    Command("worklog check FOLDER", LIVE, "worklog check ."),
    Command("worklog inspect mine.cu", "emulated"),
    Command("worklog inspect mine.cu --html out.html", "out.html"),
    Command("worklog run mine.cu", LIVE),
    Command("worklog run mine.cu --energy", "GFLOP/J"),
    Command("worklog run mine.cu --against torch,naive", LIVE),
    Command("worklog run mine.cu --against cublaslt", "of cuBLASLt"),
    Command("worklog run mine.cu --against-revision HEAD~1", LIVE),
    Command("worklog run naive warptiled", LIVE),
    Command("worklog show --share FILE", LIVE, "worklog show --share theirs.json"),
    Command("worklog show --from FILE", "theirs: NVIDIA", "worklog show --from theirs.json"),
    Command("worklog ablate vectorized", LIVE),
    Command("worklog sweep autotuned --axis BM=64,128", LIVE),
    Command("worklog profile warptiled", LIVE),
    Command("worklog bench mine.py --list", "softmax"),
    Command("worklog bench mine.py", LIVE),
    Command("worklog peers --bench mine.py", LIVE),
    Command("worklog new softmax DIR", "solution.cu", "worklog new softmax solved"),
    Command(
        "worklog check DIR/solution.cu --problem softmax",
        LIVE,
        "worklog check solved/solution.cu --problem softmax",
        exit_code=1,
    ),
    Command(
        "worklog check tests/exploits/wrong/missing_second_barrier.cu --emulate --seed 1",
        "shared-race",
        exit_code=1,
        in_checkout=True,
    ),
    Command(
        "worklog check tests/exploits/wrong/grid_rounded_down.cu",
        LIVE,
        exit_code=1,
        in_checkout=True,
    ),
    Command("worklog check tests/gate/formats/half2.cu", LIVE, in_checkout=True),
    Command(
        "worklog run FILE --batch 8",
        "batch 8",
        "worklog run tests/gate/formats/batched.cu --size 256 --batch 8",
        in_checkout=True,
    ),
    Command("worklog log", "NVIDIA"),
    Command("worklog compare OLD NEW", LIVE, "worklog compare old.jsonl new.jsonl"),
    Command("worklog article", ": README.md", in_checkout=True),
    Command("worklog figures --out DIR", LIVE, "worklog figures --out drawn"),
    Command("worklog site --out DIR", "opens in any browser", "worklog site --out pages"),
    Command("worklog journal", "#"),
    Command("worklog new notebooks DIR", "jupyterlab", "worklog new notebooks books"),
    Command("worklog new --rung 20 name", "kernels/20_name.cu", in_checkout=True),
    Command("python -m tests.record.readme", in_checkout=True),
]
# Typed by tests of their own: they don't end by themselves, or install something first.
ELSEWHERE = {
    "worklog check mine.cu --watch",
    "make lab",
    "make article",  # its commands are `worklog article` and `python -m tests.record.readme`
    "make test",
}


def blocks(language: str = "") -> list[str]:
    """Return the README's blocks of code in this language, in order."""
    text = README.read_text(encoding="utf-8")
    found = re.findall(r"^```(\w*)\n(.*?)^```", text, re.MULTILINE | re.DOTALL)
    return [block for written, block in found if written == language]


def written_commands() -> set[str]:
    """Return every command of the README, from its blocks and from its sentences."""
    found = set()
    for block in blocks():
        for line in block.splitlines():
            found.add(re.split(r"  +|\s*#", line)[0])
    text = README.read_text(encoding="utf-8")
    prose = re.sub(r"^```.*?^```", "", text, flags=re.MULTILINE | re.DOTALL)
    for quoted in re.findall(r"`([^`]+)`", prose):
        found.add(" ".join(quoted.split()))
    return {command for command in found if command.startswith(("worklog ", "make ", "python -m "))}
