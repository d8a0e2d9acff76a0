"""Matrices in shared memory as wgmma reads them, and PTX of one wgmma.mma_async."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from tests.emulator.tensor_reference import BITS, lanes_of

SWIZZLES = {0: 0, 128: 1, 64: 2, 32: 3}  # bits 62 and 63 of a descriptor, by bytes per line of the pattern


@dataclass(frozen=True)
class Case:
    """width: of the swizzle, 0 for none. trans: of A and B: rows or columns lie together. step: which 32 bytes of K of
    the pattern, where K lies together.
    """

    type_: str
    sum_type: str
    columns: int
    width: int
    in_registers: bool = False
    trans: tuple[bool, bool] = (False, False)
    signs: tuple[int, int] = (1, 1)
    step: int = 0

    @property
    def types(self) -> tuple[str, str, str]:
        """Of A, B and C."""
        return self.type_, self.type_, self.sum_type

    @property
    def shapes(self) -> tuple[tuple[int, int], ...]:
        """Of A, B transposed and C."""
        k = 256 // BITS[self.type_]
        return (64, k), (self.columns, k), (64, self.columns)

    @property
    def each(self) -> int:
        """Words of C side by side in a lane."""
        return 1 if self.sum_type == "f16" else 2


def turned(chunk: int, row: int, width: int) -> int:
    """The place of a 16-byte chunk in a line of the pattern: as in CUTLASS' pictures of the swizzles."""
    return chunk ^ {0: 0, 32: row % 8 // 4, 64: row % 8 // 2, 128: row % 8}[width]


def image(matrix: np.ndarray, width: int, trans: bool, step: int) -> tuple[bytes, int]:
    """A matrix (rows, 32 bytes of K) in memory, and its descriptor for an image at byte 0."""
    lines = np.ascontiguousarray(matrix.T if trans else matrix).view(np.uint8)
    rows, per_line = matrix.shape[0], max(width // 16, 1)
    k_lines = 8 * (width or 16)  # bytes of 8 lines of the pattern
    far = 2 * k_lines if trans or not width else 16
    leading, stride = (far, k_lines) if width else (k_lines, far)
    out = np.random.default_rng(1).integers(0, 256, rows * max(32, width) * (2 if trans else 1), np.uint8)
    for line, content in enumerate(lines):
        for chunk in range(lines.shape[1] // 16):
            if not width:
                by_line, by_chunk = (leading, stride) if trans else (stride, leading)
                place = line // 8 * by_line + line % 8 * 16 + chunk * by_chunk
            elif trans:
                place = chunk // per_line * leading + line // 8 * stride + line % 8 * width
                place += turned(chunk % per_line, line, width) * 16
            else:
                place = line // 8 * stride + line % 8 * width + turned(chunk + 2 * step, line, width) * 16
            out[place : place + 16] = content[16 * chunk : 16 * chunk + 16]
    start = 0 if trans or not width else 32 * step
    return out.tobytes(), start >> 4 | leading >> 4 << 16 | stride >> 4 << 32 | SWIZZLES[width] << 62


def wgmma(case: Case, a: np.ndarray, b: np.ndarray, c: np.ndarray, scaled: bool) -> tuple[str, np.ndarray, int]:
    """PTX for 4 warps, its registers, and the number of results. a: (64, K), b: (columns, K), c: (64, columns)."""
    k = 32 // a.itemsize
    first, descriptor_a = image(a, case.width, case.trans[0], case.step)
    second, descriptor_b = image(b, case.width, case.trans[1], case.step)
    first += bytes(-len(first) % 1024)
    second += bytes(-len(second) % 512)
    shared = np.frombuffer(first + second, np.uint32).reshape(-1, 128)
    sums = lanes_of(np.ascontiguousarray(c).view(np.uint32), case.each, 4)
    own = lanes_of(np.ascontiguousarray(a).view(np.uint32), 1, 4)[: 4 * case.in_registers]
    registers = np.concatenate([shared, sums, own, np.full((1, 128), scaled, np.uint32)])
    n, results = len(shared), len(sums)
    lines = [f"{{ .shared .align 1024 .b8 S[{shared.nbytes}]; .reg .b32 s; .reg .pred p; .reg .b64 a; .reg .b64 b;"]
    lines += ["mov.u32 s, S; cvt.u64.u32 a, s; shr.u64 a, a, 4; mad.lo.u32 s, %t0, 4, s;"]
    lines += [f"add.u64 b, a, {descriptor_b + (len(first) >> 4)}; add.u64 a, a, {descriptor_a};"]
    lines += [f"st.shared.b32 [s+{512 * k}], ${k};" for k in range(n)]
    lines += [f"mov.b32 $d{k}, ${n + k};" for k in range(results)]
    lines += [f"setp.ne.u32 p, ${len(registers) - 1}, 0; fence.proxy.async; bar.sync 0; wgmma.fence.sync.aligned;"]
    first_operand = f"{{{', '.join(f'${n + results + k}' for k in range(4))}}}" if case.in_registers else "a"
    short, floats = case.type_ in ("f16", "bf16"), case.sum_type != "s32"
    numbers = [*case.signs] * floats + [*case.trans[case.in_registers :]] * short
    head = f"wgmma.mma_async.sync.aligned.m64n{case.columns}k{k}.{case.sum_type}.{case.type_}.{case.type_}"
    given = ", ".join(["{" + ", ".join(f"$d{k}" for k in range(results)) + "}", first_operand, "b, p"])
    lines += [f"{head} {', '.join([given, *(str(int(x)) for x in numbers)])};"]
    lines += ["wgmma.commit_group.sync.aligned; wgmma.wait_group.sync.aligned 0; }"]
    return "\n".join(lines), registers, results


CASES = [
    *(
        Case("tf32", "f32", n, width, step=step)
        for n, width, step in ((8, 0, 0), (24, 32, 0), (64, 64, 1), (40, 128, 3))
    ),
    *(
        Case("f16", "f16", n, width, step=step)
        for n, width, step in ((16, 0, 0), (32, 32, 0), (8, 64, 1), (256, 128, 2))
    ),
    *(Case("bf16", "f32", 64, width, trans=(True, True)) for width in (0, 32, 64, 128)),
    Case("f16", "f32", 128, 128, trans=(False, True), signs=(-1, 1)),
    Case("f16", "f32", 64, 64, trans=(True, False), signs=(1, -1)),
    Case("bf16", "f32", 64, 128, in_registers=True, trans=(False, True)),
    Case("tf32", "f32", 16, 128, in_registers=True, signs=(-1, -1)),
    Case("s8", "s32", 64, 128, step=1),
    Case("u8", "s32", 48, 32, in_registers=True),
]
