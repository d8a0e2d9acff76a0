"""EmulatedDevice behaves as the gate expects of any device, and memory and printf as in CUDA."""

import numpy as np
import pytest

from tests.emulator.helpers import HEAD, cuda, kernel, ptx, run
from worklog.emulator import launch, load
from worklog.emulator.reports import BadLaunch, TooLarge
from worklog.gate import SgemmChecker
from worklog.kernel import Kernel
from worklog.kernel.device import Device, Program
from worklog.kernel.emulated import EmulatedDevice, EmulatedFault
from worklog.problem import Shape

SHIFT = kernel("  out[threadIdx.x + by] = n;", "float* out, int n, int by")
SIMPLE = kernel(
    "  if (threadIdx.x < n) out[threadIdx.x] = scale;", "float* out, int n, float scale"
)


def test_buffers():
    device: Device = EmulatedDevice()
    host = np.arange(64, dtype=np.float32)
    buffer = device.upload(host)
    host[0] = 99
    assert device.download(buffer)[0] == 0
    part = device.view(buffer, 16, 32)
    device.fill(part, 7.0)
    assert device.download(buffer)[15:17].tolist() == [15, 7]
    assert part.skew == 64
    device.overwrite(part, np.zeros(32, np.float32))
    assert device.download(buffer)[16:48].sum() == 0
    assert device.view(buffer, 3, 8).skew == 12
    with pytest.raises(BadLaunch, match="cannot be a view"):
        device.view(buffer, 32, 64)


def test_blocks_go_to_one_multiprocessor_after_the_other():
    device = EmulatedDevice()
    read = (
        'unsigned sm, all;\n  asm("mov.u32 %0, %%smid;\\n mov.u32 %1, %%nsmid;" : "=r"(sm), '
        '"=r"(all));'
    )
    source = kernel(f"  {read}\n  out[blockIdx.x] = sm + all * 1000;", "float* out")
    out = device.upload(np.zeros(134, np.float32))
    device.launch(device.compile(Program("sm.cu", source, "k")), (134, 1), 1, [out])
    assert (device.download(out) - 132000).tolist() == [*range(132), 0, 1]


MEETING = """__device__ int slots[132];
extern "C" __global__ void k(int* wrong) {
  unsigned slot;
  asm("SLOT" : "=r"(slot));
  atomicExch(&slots[slot], blockIdx.x);
  __syncthreads();
  if (atomicAdd(&slots[slot], 0) != blockIdx.x) atomicAdd(wrong, 1);
}"""


@pytest.mark.parametrize(
    ("slot", "shared_bytes", "meets"),
    [
        ("mov.u32 %0, %%smid;", 0, True),  # an SM has several blocks
        ("mov.u32 %0, %%smid;", 200_000, False),  # an SM has room for one
        ("mov.u32 %0, %%ctaid.x;", 0, False),
        ("mov.u32 %0, 0;", 0, True),
    ],
)
def test_blocks_that_share_a_place_meet_there_in_another_schedule(slot, shared_bytes, meets):
    device = EmulatedDevice()
    program = Program("meets.cu", MEETING.replace("SLOT", slot), "k", shared=shared_bytes)
    loaded = device.compile(program)
    counts = []
    for _ in range(3):
        wrong = device.upload(np.zeros(1, np.float32))
        device.launch(loaded, (64, 1), 64, [wrong])
        counts.append(int(device.download(wrong).view(np.int32)[0]))
    assert not device.findings
    assert counts[0] == 0 and (max(counts) > 0) == meets


def test_device_variables_keep_their_values_until_the_module_is_loaded_again():
    """As in CUDA: loading a module initialises them, a launch does not."""
    device = EmulatedDevice()
    program = Program(
        "count.cu", "__device__ float count = 5;\n" + SHIFT.replace("= n;", "= count += n;"), "k"
    )
    first = device.compile(program)
    second = device.compile(program)
    out = device.upload(np.zeros(8, np.float32))
    for at, loaded in enumerate((first, first, second, first, device.compile(program))):
        device.launch(loaded, (1, 1), 1, [out, np.int32(1), np.int32(at)])
    assert device.download(out).tolist() == [6, 7, 6, 8, 6, 0, 0, 0]


def test_a_program_that_was_loaded_before_is_read_once_and_goes_on_with_other_schedules():
    program = Program("shift.cu", SHIFT, "k")
    labels = []
    for device in (EmulatedDevice(), EmulatedDevice()):
        for loaded in (device.compile(program), device.compile(program)):
            for _ in range(2):
                device.launch(
                    loaded,
                    (1, 1),
                    1,
                    [device.upload(np.zeros(1, np.float32)), np.int32(1), np.int32(0)],
                )
                labels.append(device.last.label.rpartition(" · ")[2])
            assert (loaded.kernel is device.compile(program).kernel) and loaded.kernel.name == "k"
    assert labels == ["sm_90 PTX", "schedule 1", "schedule 2", "schedule 3"] * 2


@pytest.mark.parametrize(
    ("right", "stage"), [(1, "exact on edge shapes"), (99, "kept state"), (9999, None)]
)
def test_the_gate_fails_a_kernel_that_is_wrong_from_some_launch_on(right, stage, few_shapes):
    """The gate launches a kernel that keeps a variable some thousand times more."""
    device = EmulatedDevice()
    source = cuda("counts_launches").replace("RIGHT = 1", f"RIGHT = {right}")
    verdict = SgemmChecker(device, Shape(40, 24, 12), 0).check(
        Kernel.from_source(source).load(device)
    )
    assert [s.name for s in verdict.stages if not s.passed] == ([stage] if stage else []), (
        verdict.reason
    )


def test_an_access_outside_a_view_is_a_fault():
    device = EmulatedDevice()
    shift = device.compile(Program("shift.cu", SHIFT, "k"))
    whole = device.upload(np.zeros(96, np.float32))
    middle = device.view(whole, 32, 32)
    device.launch(shift, (1, 1), 32, [middle, np.int32(5), np.int32(0)])
    device.synchronize()
    device.launch(shift, (1, 1), 32, [middle, np.int32(6), np.int32(4)])
    with pytest.raises(
        EmulatedFault, match=r"shift\.cu:3: global-out-of-bounds: thread 28 .* past the end"
    ) as caught:
        device.synchronize()
    assert caught.value.findings[0].count == 4
    assert "out[threadIdx.x + by] = n;" in str(caught.value)
    device.synchronize()
    assert device.download(whole).tolist() == [0] * 32 + [5] * 4 + [6] * 28 + [0] * 32


def test_registers_that_no_warp_releases_are_an_endless_wait():
    device = EmulatedDevice()
    source = cuda("registers")
    arguments = (device.upload(np.zeros(384, np.float32)), np.int32(1), np.int32(0))
    device.launch(device.compile(Program("k.cu", source, "k")), (1, 1), 384, arguments)
    device.synchronize()
    for old, new in (
        ('asm volatile("setmaxnreg.dec.sync.aligned.u32 104;")', "by += 0"),
        ("32 200;", "32 208;"),
    ):
        device.launch(
            device.compile(Program("k.cu", source.replace(old, new), "k")), (1, 1), 384, arguments
        )
        with pytest.raises(EmulatedFault, match=r"k\.cu:5: registers: thread 128 .* of 64512"):
            device.synchronize()


def test_accesses_outside_of_buffers():
    """A load there gives zero."""
    (nowhere,) = run(SIMPLE, [0, 3, 1.0]).findings
    assert (nowhere.kind, nowhere.count) == (
        "global-out-of-bounds",
        3,
    ) and "in no buffer" in nowhere.message
    (behind,) = run(SIMPLE, [np.zeros(4, np.float32), 6, 1.0]).findings
    assert behind.threads == (4, 5)
    assert behind.at("k.cu") == (
        "k.cu:3: global-out-of-bounds: thread 4 of block (0, 0, 0) writes 4 bytes just past the "
        "end of argument 0 "
        "(16 bytes) (2 times)\n    if (threadIdx.x < n) out[threadIdx.x] = scale;"
    )
    out = np.ones(32, np.float32)
    run(
        kernel("  out[threadIdx.x] = in[threadIdx.x];", "const float* in, float* out"),
        [np.ones(4, np.float32), out],
    )
    assert out.tolist() == [1] * 4 + [0] * 28


def test_an_array_of_a_thread_that_is_never_written_is_nan():
    out = np.zeros(1, np.float32)
    body = "float x[9]; for (int i = 0; i < n; ++i) x[(i * 5 + n) % 9] += i; *out = x[n % 9];"
    run(kernel(body, "float* out, int n"), [out, 20], block=1)
    assert np.isnan(out).all()


def test_a_kernel_prints_what_c_would_and_most_lines_of_a_loop_are_only_counted():
    body = """  if (threadIdx.x % 16 == 3)
    out[0] = printf("%d %5.2f|%-4s|%c %x %lld %% %p\\n", -7, x[threadIdx.x], "ab", 'q', 255, 1ll << 40, (void*)0);
  if (threadIdx.x == 0) printf("%*d %u\\n", 4, 5, 4294967295u);
  for (int i = 0; i < 10; i++) printf("%d\\n", i);"""
    out = np.zeros(1, np.int32)
    x = np.arange(32, dtype=np.float32)
    result = run(kernel(body, "int* out, const float* x"), [out, x])
    rest = "|ab  |q ff 1099511627776 % 0x0"
    assert result.printed[:3] == (f"-7  3.00{rest}", f"-7 19.00{rest}", "   5 4294967295")
    assert result.printed[3:] == ("0",) * 17 + ("… and 303 more calls of printf",)
    assert result.ok and out[0] == 7


@pytest.mark.parametrize(
    "call",
    ['"%2000000000d", 1', '"%*d", 2000000000, 1', '"%.99999f", 1.0', '"%.*f|", 5000, 1.0',
     '"%*d", 1 << 31, 1', f'"%{"9" * 5000}d", 1'],
)  # fmt: skip
def test_a_number_of_more_characters_than_c_guarantees_is_refused(call):
    with pytest.raises(TooLarge, match=r"^printf prints '%.* characters: use at most 4,095$"):
        run(kernel(f"  printf({call});", ""), [])


def test_negative_widths_and_precisions_are_those_of_c():
    body = r'  printf("%*d|%.*f|%.*d|%4095d\n", -4, 5, -1, 0.5, -1, 7, 1);'
    assert run(kernel(body, ""), [], block=1).printed == ("5   |0.500000|7|" + " " * 4094 + "1",)


def test_what_is_printed_without_a_new_line_takes_bounded_memory():
    body = '  for (int i = 0; i < 1000; i++) printf("%4000d", i);'
    printed = run(kernel(body, ""), [], block=1).printed
    assert printed[-1] == "… and 975 more calls of printf" and len(printed[0]) == 100_000
    assert len(printed) == 2


def test_a_vector_of_parameters_and_registers_that_are_declared_without_a_space():
    out = np.zeros(4, np.uint32)
    launch(load(HEAD + ptx("vector")), (1,), 1, [out, sum((k + 5) << 32 * k for k in range(4))])
    assert out.tolist() == [5, 6, 7, 8]


def test_a_load_behind_the_end_of_a_parameter_is_found():
    text = ".visible .entry k(.param .u32 n) { .reg .b32 %r; ld.param.u32 %r, [n+4]; ret; }"
    (finding,) = launch(load(HEAD + text), (1,), 1, [5]).findings
    assert finding.message.endswith("reads 4 bytes just past the end of n (4 bytes)")


def test_a_load_at_a_crooked_address_far_outside_of_shared_memory_beside_copies_is_found():
    text = """.visible .entry k() { .shared .align 4 .b8 s[64]; .reg .b32 %r<2>;
cp.async.commit_group; mov.u32 %r0, 4026531841; ld.shared.u32 %r1, [%r0]; ret; }"""
    (finding,) = launch(load(HEAD + text), (1,), 1, []).findings
    assert finding.kind == "shared-out-of-bounds"
