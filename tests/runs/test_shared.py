"""A run that is shared holds no text of its machine, and is refused if it has changed."""

import getpass
import json
import os
import socket
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.helpers import CALIBRATION, GPU, measured, product, small_run, typed
from worklog.errors import BadRunFile, BadSetting, NothingToDraw
from worklog.kernel import RUNGS
from worklog.problem import Shape
from worklog.runner import execute
from worklog.runner.job import product_job
from worklog.runs import Counters, Measurement, Ran, Run, Stage, Verdict
from worklog.runs.run_file import Card
from worklog.runs.shared import open_shared, share, shares_of_both, side_by_side
from worklog.runs.statistics import Estimate, LaunchSeries, Samples
from worklog.settings import Harness

NAMES = [*(kernel.name for kernel in RUNGS), "cuBLAS"]
H100 = replace(GPU, name="NVIDIA H100 PCIe", multiprocessors=114, uuid="GPU-f6d63085")
HASH = "9f1301ce15f9e59be5fa0fd82f322a7a"


def private(text: str) -> Run:
    """Return a run with a text of its machine wherever a run has a text."""
    first = measured("naive")
    sides = [replace(side, name=text) for side in first.samples.sides[:1]]
    sides += [*first.samples.sides[1:], LaunchSeries(text, [1.0, 2.0, 3.0])]
    stage = Stage(text, True, 0.0, 0.0, detail=text, note=text, clause=text)
    filled = replace(
        first,
        verdict=Verdict((stage,), "fp32", label=text),
        against={**first.against, text: Estimate(1.0, 0.9, 1.1)},
        degradations=(text, f"not converged: {text}"),
        witnesses={text: text},
        ran=Ran(text, 1.79e9, 2.0),
        samples=Samples(sides, [1, 1, 0]),
    )
    about = {"file": text, "sha256": HASH, "registers": 40, "idea": text, "options": [text]}
    return small_run(
        gpu=replace(H100, driver=f"580.1 {text}", uuid=text),
        cards={text: Card(replace(H100, uuid=text), CALIBRATION)},
        calibration=replace(CALIBRATION, offset_by_length_us={"1": 3.4, text: 3.5}),
        tool={"version": f"0.1.0+{text}", "commit": text, "command": [text], text: text},
        software={"numpy": f"2.5.2+{text}", "platform": text, text: text, "cublas": "13.1.0"},
        harness={**Harness().as_dict(), text: text},
        created=f"2026-11-21T03:12:44 {text}",
        kernels={"naive": about, text: {**about, "user": "kernel"}},
        notes=[text],
        measurements=[
            filled,
            measured("cuBLAS", us=50.0, ratio=1.0),
            measured(text),
            Measurement("naive", product(1024), "failed", text),
        ],
        counters=[Counters("naive", (512, 512, 512), {text: 1.0}, {}, {}, ncu=text)],
    )


def texts_of_this_machine() -> list[str]:
    """Return what a shared file must not have."""
    found = [os.environ.get(name, "") for name in ("HOME", "USER", "LOGNAME", "PATH", "HOSTNAME")]
    return [*filter(None, found), socket.gethostname(), getpass.getuser(), os.getcwd(), H100.uuid]


@pytest.mark.parametrize("text", texts_of_this_machine())
def test_a_shared_run_is_the_same_on_any_machine(text):
    shared = share(private(text), NAMES)
    assert shared.text == share(private("another-machine"), NAMES).text
    assert shared.left_out == (text,)


@given(
    st.text(st.characters(exclude_categories=["Cs"]), min_size=1).filter(
        lambda text: text not in (*NAMES, "1", *Harness().as_dict())
    )
)
def test_no_text_of_a_run_is_shared(text):
    """A digit is no text of a machine: it may stand for a length, or end a version."""
    marked = f"x{text}"
    assert share(private(marked), NAMES).text == share(private("x"), NAMES).text


def shared_file(folder: Path, run: Run | None = None) -> Path:
    path = folder / "theirs.json"
    path.write_text(share(run or small_run(gpu=H100), NAMES).text, encoding="utf-8")
    return path


def test_a_shared_file_has_numbers_versions_and_checksums(tmp_path):
    theirs = open_shared(shared_file(tmp_path, private("secret")))
    assert theirs.label == "shared · NVIDIA H100 PCIe · clocks as found · 2026-11-21"
    assert (theirs.gpu.uuid, theirs.gpu.driver) == ("", "580.1")
    assert theirs.software == {"numpy": "2.5.2", "cublas": "13.1.0"}
    assert theirs.tool == {"name": "gemm-worklog", "version": "0.1.0"}
    assert theirs.kernels == {"naive": {"sha256": HASH, "registers": 40}}
    first, _, failed = theirs.measurements
    own = measured("naive")
    assert (first.time, first.ratio, first.sm_mhz) == (own.time, own.ratio, own.sm_mhz)
    assert not first.converged and "a remark: " in first.degradations[0]
    assert first.verdict == Verdict((), "fp32") and failed.status == "failed"


@given(place=st.integers(0), letter=st.characters(min_codepoint=32, max_codepoint=126))
def test_a_file_with_another_letter_is_refused(place, letter, tmp_path_factory):
    path = shared_file(tmp_path_factory.mktemp("shared"))
    text = path.read_text(encoding="utf-8").rstrip("\n")
    place %= len(text)
    if text[place] != letter:
        path.write_text(text[:place] + letter + text[place + 1 :], encoding="utf-8")
        with pytest.raises(BadRunFile):
            open_shared(path)


@given(lost=st.sets(st.integers(0, 8), min_size=1))
def test_a_file_without_some_lines_is_refused(lost, tmp_path_factory):
    path = shared_file(tmp_path_factory.mktemp("shared"))
    lines = path.read_text(encoding="utf-8").splitlines()
    kept = [text for number, text in enumerate(lines) if number not in lost]
    path.write_text("\n".join(kept), encoding="utf-8")
    with pytest.raises(BadRunFile):
        open_shared(path)


@pytest.mark.parametrize(
    ("before", "after", "message"),
    [
        ('"value":100.0', '"value":10.0', r"has changed since it was shared.*ask for the file"),
        ('"checksum","schema":1', '"checksum","schema":2', r"install a newer gemm-worklog"),
        ('"head","schema":2', '"head","schema":3', r"has changed since it was shared"),
    ],
)
def test_a_changed_file_is_named_with_what_to_do(before, after, message, tmp_path):
    path = shared_file(tmp_path)
    text = path.read_text(encoding="utf-8")
    assert before in text
    path.write_text(text.replace(before, after), encoding="utf-8")
    for words in (("--from", path), (path,)):
        refused = typed("show", *words)
        assert refused.exit_code == 2 and not refused.stdout
        with pytest.raises(BadRunFile, match=message):
            open_shared(path)


def test_a_run_that_nobody_shared_is_not_taken(tmp_path):
    own = small_run().save(tmp_path / "own.jsonl")
    with pytest.raises(BadRunFile, match=r"has no checksum: .*`worklog show --share`"):
        open_shared(own)


def test_what_was_measured_elsewhere_is_not_shared():
    with pytest.raises(BadSetting, match=r"this one is recorded: measure with `worklog run`"):
        share(small_run(origin="recorded"), NAMES)
    both = small_run(cards={"host:1": Card(H100, CALIBRATION)})
    both.add(replace(measured("shared"), ran=Ran("host:1", 1.79e9, 2.0)))
    with pytest.raises(BadSetting, match="a run on one card"):
        share(both, NAMES)
    with pytest.raises(BadSetting, match="no time of a rung or of cuBLAS"):
        share(small_run(measurements=[measured("mine")]), NAMES)


def test_each_number_is_beside_its_card_and_each_ratio_is_of_one_card(tmp_path):
    theirs = small_run(gpu=H100, measurements=[measured("naive", us=200.0, ratio=0.4)])
    theirs.measurements += [measured("shared", 256)]
    table = side_by_side(small_run(), open_shared(shared_file(tmp_path, theirs)))
    rows = [dict(zip(table.columns, map(str, row), strict=True)) for row in table.rows]
    at_512 = [row for row in rows if row["size"] == "512"]
    assert [row["card"] for row in at_512] == ["ours: NVIDIA H200", "theirs: NVIDIA H100 PCIe"]
    assert [row["of cuBLAS"].split()[0] for row in at_512] == ["50.0", "40.0"]
    assert [row["card"] for row in rows if row["size"] == "256"] == ["theirs: NVIDIA H100 PCIe"]
    assert table.notes[0].startswith("ours: live · NVIDIA H200")
    assert table.notes[1].startswith("theirs: shared · NVIDIA H100 PCIe")
    assert "ours has no time of shared at 256" in table.notes


def test_settings_that_differ_are_named(tmp_path):
    warm = small_run(gpu=H100, harness=Harness().but(l2="warm").as_dict())
    table = side_by_side(small_run(), open_shared(shared_file(tmp_path, warm)))
    assert "settings that differ: l2 = flush (ours), warm (theirs)" in table.notes


def test_one_command_shares_a_run_and_one_prints_it_beside_ours(tmp_path):
    own = small_run(gpu=H100, measurements=[measured("naive"), measured("mine")])
    own.save(tmp_path / "own.jsonl")
    path = tmp_path / "theirs.json"
    written = typed("show", tmp_path / "own.jsonl", "--share", path)
    assert written.exit_code == 0 and f"written: {path}\n" in written.stderr
    assert "left out, since others don't have it: mine\n" in written.stderr
    assert "exists already" in typed("show", tmp_path / "own.jsonl", "--share", path).stderr
    printed = typed("show", "h200", "--from", path)
    assert printed.exit_code == 0 and "theirs: NVIDIA H100 PCIe" in printed.stdout
    document = json.loads(typed("show", "h200", "--from", path, "--json").stdout)
    assert document["rows"][-1]["card"] == "theirs: NVIDIA H100 PCIe"
    assert "NVIDIA H100 PCIe" in typed("show", path).stdout, "it is a run like any other"
    assert "omit --pivot" in typed("show", "--from", path, "--pivot").stderr


def test_a_chart_has_the_shares_of_each_card_at_the_largest_size_of_both(tmp_path):
    ours = small_run(measurements=[measured("naive", n, ratio=0.5) for n in (256, 512, 1024)])
    theirs = [measured("naive", n, ratio=0.25) for n in (256, 512)]
    path = shared_file(tmp_path, small_run(gpu=H100, measurements=theirs))
    shares = shares_of_both(ours, open_shared(path))
    assert shares.shape == Shape.of(512)
    assert shares.by_card == {
        "NVIDIA H200 (ours)": {"naive": 50.0},
        "NVIDIA H100 PCIe (theirs)": {"naive": 25.0},
    }
    assert "50.0 % on NVIDIA H200 (ours), 25.0 % on NVIDIA H100 PCIe (theirs)" in shares.finding
    with pytest.raises(NothingToDraw, match="no kernel with a share at the same size"):
        shares_of_both(small_run(measurements=[measured("naive", 64)]), open_shared(path))
    own = ours.save(tmp_path / "own.jsonl")
    drawn = typed("show", own, "--from", path, "--chart", tmp_path / "both.svg")
    assert drawn.exit_code == 0 and (tmp_path / "both_dark.svg").exists()
    assert "--chart is for --from" in typed("show", own, "--chart", tmp_path / "one").stderr


def test_a_run_of_the_virtual_gpu_is_shared_without_what_stands_in_for_a_rung(tmp_path):
    jobs = [product_job(name, Shape.of(64)) for name in ("naive", "cuBLAS")]
    quick = Harness().but(least_samples=6, most_samples=12, budget_s=0.1, hot_ms=0.0)
    command = (sys.executable, "-m", "tests.virtual.ladder_job")
    out = tmp_path / "virtual.jsonl"
    execute.carry_out(execute.order_of(jobs, quick), command=command, out=out)
    shared = share(Run.load(out), NAMES)
    assert shared.left_out == ("naive",), "a function stands in for it"
    path = tmp_path / "theirs.json"
    path.write_text(shared.text, encoding="utf-8")
    theirs = open_shared(path)
    assert [m.kernel for m in theirs.measurements] == ["cuBLAS"]
    assert theirs.gpu.name == "a virtual GPU" and theirs.measurements[0].us
