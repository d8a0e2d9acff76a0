"""The table of PTX instructions, besides what they compute, which is in ops.py.

One row has the class in which an instruction is counted, its effect on memory and order, the record
of the core that it becomes, and the message for a missing form.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from functools import cache
from types import MappingProxyType
from typing import NamedTuple

from worklog.emulator.ops import expanded

UNSUPPORTED = "it: check this kernel on a GPU, or write it without this instruction"
TENSOR = "this form of a tensor-core instruction: check this kernel on a GPU"
GROUP = "this warp-group tensor-core instruction: check this kernel on a GPU"
HALF = "this instruction in 16-bit floats: compute in float, or use a GPU"
BARRIERS = "barriers other than those of a block and of a warp: use these, or a GPU"
COPIES = "this form of asynchronous copy: use plain loads, or a GPU"
PROXIES = "fences between proxies other than .async: use a GPU"
# By a type in the opcode, what is said instead of a row's hint.
HINTS = {**dict.fromkeys(("f16", "f16x2", "bf16", "bf16x2"), HALF), "tf32": TENSOR}
ORDERED = {
    "volatile",
    "acquire",
    "release",
    "relaxed",
    "mmio",
}  # accesses that don't race with each other
FENCES = {"fence", "membar", "release", "acquire", "acq_rel"}
SPACES = {
    "global": "global",
    "shared": "shared",
    "local": "local",
    "const": "const",
    "param": "const",
}
SHARED = "shared shared::cta shared::cluster"
SCOPES = "cta cluster gpu sys"
EVICT = "L1::evict_normal L1::evict_last L1::evict_first L1::no_allocate L1::evict_unchanged"
PREFETCH = "L2::64B L2::128B L2::256B"
# A word that is in two groups excludes those of both.
LOAD = (
    f"weak relaxed volatile acquire | {SCOPES} | global local param const {SHARED} | relaxed acquire ca cg cs lu cv | "
    f"volatile ca cg cs lu cv {EVICT} | volatile nc | L2::cache_hint | {PREFETCH} | v2 v4"
)
STORE = (
    f"weak relaxed volatile release | {SCOPES} | global local param {SHARED} | relaxed release wb cg cs wt | "
    f"volatile wb cg cs wt {EVICT} | L2::cache_hint | v2 v4"
)
REDUCTION = f"relaxed release | {SCOPES} | global {SHARED} | L2::cache_hint | v2 v4"
ATOMIC = f"acquire acq_rel {REDUCTION}"
# Words that a free one needs one of, and those that it excludes.
NEEDED = {
    "relaxed acquire release": f"{SCOPES} atom red", SCOPES: "relaxed acquire release acq_rel atom red bar barrier",
    "nc": "global", "aligned": "barrier", "read": "wait_group",
}  # fmt: skip
EXCLUDED = {
    f"local const param {SHARED}": f"nc L2::cache_hint {EVICT} {PREFETCH}",
    "local const param": "volatile relaxed acquire release",
    f"global {SHARED} L2::cache_hint {PREFETCH}": "pending_count commit_group wait_all wait_group alias",
}  # fmt: skip
TYPES = "{b8,u8,s8,b16,u16,s16,b32,u32,s32,f32,b64,u64,s64,f64}"
BAR = "{bar,bar.cta,barrier,barrier.cta}"
BOX = "{,1d,2d,3d,4d,5d}"
ARRIVES = "{arrive,arrive_drop}.{,release,relaxed,noComplete,noComplete.release,release.noComplete}"
ATOMICS = {
    "{atom,red}.{add.u32,add.s32,add.u64,add.s64,add.f32,add.f64,inc.u32,dec.u32}": "ACCESS/{1}",
    "{atom,red}.{min,max}.{u32,s32,u64,s64}": "ACCESS/{1}.{2}",
    "{atom,red}.{and,or,xor,exch}.{b32,b64}": "ACCESS/{1}.{2}",
    "{atom,red}.cas.{b16,b32,b64}": "ACCESS/cas.{1}",
    "{atom,red}.add.noftz.{f16,f16x2,bf16,bf16x2}": "ACCESS/add.noftz.{1}",
}


class Opcode(NamedTuple):
    """What the table has of an instruction.

    counted: the class in Counts.instructions; "number": "float" or "integer", by its type
    memory: a Site's op
    effects: "void": it has no result (else its first operand is the result); "parts": ptxas joins
        no shared accesses across it; "none" on the emulator
    hint: what isn't supported if a form is missing, and what to do
    free: words that the forms don't have, in groups: at most one word of each, in any order
    forms: by opcode, or "*", the core's kind/operation, and its operands in order

    Operands are fields of a record: `a:u32` a value of a type, `d` the result, `shared`,
    `global` an address, `number#` a literal, `_` ignored, `...` ignored with all that follow;
    `a:u32=0` takes no operand, `?` may be missing.
    """

    counted: str = "other"
    memory: str = ""
    effects: str = ""
    hint: str = UNSUPPORTED
    free: str = ""
    forms: Mapping[str, str] = MappingProxyType({})
    # Of an opcode, by its words:
    barrier: bool = False  # of a block
    meeting: bool = False  # lanes of a warp wait for each other before it
    loads: bool = False  # its result comes from memory that a kernel may write
    strong: bool = False  # an atomic with a result, or an access that PTX orders
    fence: bool = False  # it orders what a thread did before or does later for others
    space: str = "generic"
    elements: int = 1  # that a lane accesses


# Of mnemonics, or their first words, but those that only compute a value and have no class.
INSTRUCTIONS = (
    ("add sub mul mad div rem min max abs neg setp sqrt rcp", Opcode("number")),
    ("and or xor not lop3 shl shr shf bfe bfi brev popc clz prmt", Opcode("integer")),
    ("fma", Opcode("fma")),
    ("ld", Opcode("load", "ld", free=LOAD, forms={f"ld.{TYPES}": "ACCESS"})),
    ("st", Opcode("store", "st", "void parts", free=STORE, forms={f"st.{TYPES}": "ACCESS"})),
    ("atom", Opcode("other", "atom", "parts", free=ATOMIC, forms=ATOMICS)),
    ("red", Opcode("other", "atom", "void parts", free=REDUCTION, forms=ATOMICS)),
    ("cp.async", Opcode("load", "cp", "void parts", COPIES,
                     f"{SHARED} | L2::cache_hint | {PREFETCH}", {
        "cp.async.{ca,cg}.global": "ASYNC/COPY shared global _ size:u32?",
        "cp.async.commit_group": "ASYNC/COPY_COMMIT",
        "cp.async.wait_all": "ASYNC/COPY_WAIT",
        "cp.async.wait_group": "ASYNC/COPY_WAIT number#",
        "cp.async.mbarrier.arrive.{,noinc}.b64": "ASYNC/TRACK shared",
    })),
    ("cp.async.bulk", Opcode("load", "cp", "void parts", COPIES,
                          "read | multicast::cluster | cta_group::1 | tile | L2::cache_hint", {
        "cp.async.bulk.commit_group": "ASYNC/BULK_COMMIT",
        "cp.async.bulk.wait_group": "ASYNC/BULK_WAIT number#",
        **{f"cp.async.bulk.{{,tensor}}.{BOX}.{shared}.global.mbarrier::complete_tx::bytes":
               "ASYNC/BULK_LOAD shared global coordinates:u32 barrier size:u16?" for shared in SHARED.split()[1:]},
        "cp.async.bulk.global.shared::cta.bulk_group": "ASYNC/BULK_STORE global shared coordinates:u32",
        f"cp.async.bulk.tensor.{BOX}.global.shared::cta.bulk_group": "ASYNC/BULK_STORE global coordinates:u32 shared",
        f"cp.async.bulk.prefetch.{{,tensor}}.{BOX}.L2.global": "ALU ...",
    })),
    ("cp.reduce", Opcode("load", "", "void parts", "copies that reduce: use atomics, or a GPU")),
    ("bra", Opcode("control", "", "void", forms={"*": "BRANCH"})),
    ("ret exit", Opcode("control", "", "void", forms={"*": "EXIT"})),
    ("ret.function", Opcode("control", "", "void", forms={"*": "RETURN ..."})),
    ("bar barrier", Opcode("barrier", "", "void parts", BARRIERS, "aligned", {
        f"{BAR}.sync": "BARRIER/SYNC a:u32 b:u32?",
        f"{BAR}.arrive": "BARRIER/ARRIVE a:u32 b:u32",
        "barrier.cluster.arrive.{,release}": "BARRIER/CLUSTER_ARRIVE",
        "barrier.cluster.arrive.relaxed": "BARRIER/CLUSTER_RELAXED",
        "barrier.cluster.wait.{,acquire}": "BARRIER/CLUSTER_WAIT",
        "bar.warp.sync": "WARP/SYNCHRONISE site:b32",
    })),
    ("bar.red barrier.red", Opcode("barrier", "", "parts", BARRIERS, "aligned", {
        f"{BAR}.red.popc.u32": "BARRIER/POPULATION d:u32 a:u32 b:u32? c:pred",
        f"{BAR}.red.{{and:ALL_TRUE,or:ANY_TRUE}}.pred": "BARRIER/{1} d:pred a:u32 b:u32? c:pred",
    })),
    ("fence membar", Opcode("other", "", "void parts", forms={
        "fence.{,sc,acq_rel,acquire,release}.{cta:0,cluster:1,gpu:1,sys:1}": "FENCE/{1}",
        "membar.{cta:0,gl:1,sys:1}": "FENCE/{0}",
        "fence.mbarrier_init.release.cluster": "ASYNC/FENCE_PROXY",
    })),
    ("fence.proxy", Opcode("other", "", "void parts", PROXIES, f"global {SHARED}", {
        "fence.proxy.async": "ASYNC/FENCE_PROXY",
        "fence.proxy.alias": "ALU",
    })),
    ("mbarrier", Opcode("other", "", "", "this form of mbarrier: check this kernel on a GPU",
                     f"cta cluster | {SHARED} | b64", {
        "mbarrier.init": "ASYNC/INITIALISE shared number:u32",
        "mbarrier.inval": "ASYNC/INVALIDATE shared",
        "mbarrier.{expect_tx,complete_tx}.{,relaxed}": "ASYNC/EXPECT shared number:u32",
        f"mbarrier.{ARRIVES}": "ASYNC/ARRIVE_AT d:b64? shared number:u32?",
        "mbarrier.{arrive,arrive_drop}.expect_tx.{,release,relaxed}": "ASYNC/ARRIVE_AT d:b64? shared size:u32",
        "mbarrier.{test_wait,try_wait}.{,acquire,relaxed}": "ASYNC/WAIT_FOR d:pred shared value:b64 _?",
        "mbarrier.{test_wait,try_wait}.parity.{,acquire,relaxed}": "ASYNC/WAIT_FOR d:pred shared value:u32 _?",
        "mbarrier.pending_count": "ASYNC/PENDING_COUNT d:u32 a:b64",
    })),
    ("mapa getctarank", Opcode(free="shared::cluster", forms={
        "mapa.{u32,u64}": "ALU/mapa.{0} d:{0} a:{0} b:u32",
        "getctarank.{u32,u64}": "ALU/getctarank.{0} d:u32 a:{0} b:u32=%cluster_ctarank",
    })),
    ("shfl", Opcode(forms={
        "shfl.sync.{up:UP,down:DOWN,bfly:BUTTERFLY,idx:INDEX}.b32": "SHUFFLE/{0} d:b32 a:b32 b:b32 c:b32 site:b32",
    })),
    ("vote activemask elect", Opcode(forms={
        "vote.sync.{any:ANY,all:ALL,uni:UNIFORM}.pred": "WARP/{0} d:pred a:pred site:b32",
        "vote.sync.ballot.b32": "WARP/BALLOT d:b32 a:pred site:b32",
        "activemask.b32": "WARP/ACTIVE d:b32",
        "elect.sync": "WARP/ELECT d:b32 site:b32",
    })),
    ("match", Opcode(forms={
        "match.{any:ANY,all:ALL}.sync.b32": "WARP/MATCH_{0} d:b32 a:b32 site:b32",
        "match.{any:ANY,all:ALL}.sync.b64": "WARP/WIDE_MATCH_{0} d:b32 a:b64 site:b32",
    })),
    ("redux", Opcode(forms={  # the core reduces by a row of ops.TABLE
        "redux.sync.{add,min,max}.{u32,s32}": "WARP/REDUCE+{0}.{1} d:b32 a:b32 site:b32",
        "redux.sync.{and,or,xor}.b32": "WARP/REDUCE+{0}.b32 d:b32 a:b32 site:b32",
        "redux.sync.{min,max}.f32": "WARP/REDUCE+{0}.f32 d:b32 a:b32 site:b32",
    })),
    ("setmaxnreg", Opcode("other", "", "void", forms={
        "setmaxnreg.{inc,dec}.sync.aligned.u32": "SET_REGISTERS a:u32",
    })),
    ("trap brkpt", Opcode("other", "", "void", forms={"{trap,brkpt}": "TRAP", "trap.assert": "TRAP a:u64 ..."})),
    ("call", Opcode(forms={"call.vprintf": "PRINT d:u32 a:u64 b:u64"})),
    ("call.function", Opcode("control", forms={"*": "CALL"})),
    # A cache policy only reaches cache hints, which the emulator ignores.
    ("createpolicy", Opcode(forms={"*": "ALU/mov.b64 d:b64 a:b64=0 ..."})),
    ("prefetch prefetchu nanosleep griddepcontrol pmevent applypriority", Opcode("other", "", "void none")),
    ("mma wmma.mma", Opcode("tensor", "", "", TENSOR, forms={"*": "TENSOR/MULTIPLY"})),
    ("ldmatrix wmma.load", Opcode("load", "ld", "", TENSOR, forms={"*": "TENSOR/MATRICES"})),
    ("stmatrix wmma.store", Opcode("store", "st", "void", TENSOR, forms={"*": "TENSOR/MATRICES"})),
    ("movmatrix", Opcode("other", "", "", TENSOR, forms={"movmatrix.sync.aligned.m8n8.trans.b16": "TENSOR/TURN"})),
    ("wmma tcgen05", Opcode("other", "", "", TENSOR)),
    ("wgmma", Opcode("other", "", "", GROUP, forms={
        "wgmma.{fence:0,commit_group:1}.sync.aligned": "WGMMA/{0}",
        "wgmma.wait_group.sync.aligned": "WGMMA/2 target#",
    })),
    ("wgmma.mma_async", Opcode("tensor", "wgmma", "", GROUP, forms={"*": "WGMMA/MMA_ASYNC"})),
    ("brx", Opcode(hint="jump tables: replace the switch with if and else")),
    ("tex tld4 suld sust", Opcode(hint="textures and surfaces: read global memory")),
)  # fmt: skip

OPCODES = dict[str, Opcode]()
for _names, _opcode in INSTRUCTIONS:
    OPCODES |= dict.fromkeys(_names.split(), _opcode)


@cache
def opcode_of(opcode: str) -> Opcode:
    """Return what the table has of an instruction.

    By its first three words, its first two words, or its mnemonic.
    """
    parts = {*opcode.split(".")}
    mnemonic = opcode.replace(".cta", "", 1).split(".")
    row = Opcode()
    for length in (3, 2, 1):
        name = ".".join(mnemonic[:length])
        if name in OPCODES:
            row = OPCODES[name]
            break
    is_barrier = row.counted == "barrier" and "warp" not in parts
    return row._replace(
        counted=_number_class(mnemonic) if row.counted == "number" else row.counted,
        barrier=is_barrier,
        meeting="sync" in parts and not is_barrier,
        loads=row.memory not in ("", "st", "cp") and "param" not in parts,
        strong=mnemonic[0] == "atom" or not ORDERED.isdisjoint(parts),
        fence=not FENCES.isdisjoint(parts),
        space=_space(mnemonic),
        elements=_elements(parts),
    )


def _number_class(mnemonic: list[str]) -> str:
    """Return the class in which an instruction on numbers is counted, by its type."""
    if mnemonic[-1] not in ("f32", "f64", "f16"):
        return "integer"
    return "fma" if mnemonic[0] == "mad" else "float"


def _space(mnemonic: list[str]) -> str:
    """Return the memory that an instruction names, else "generic"."""
    for part in mnemonic:
        name = part.partition("::")[0]
        if name in SPACES:
            return SPACES[name]
    return "generic"


def _elements(parts: set[str]) -> int:
    """Return the elements that a lane accesses."""
    if "v2" in parts:
        return 2
    return 4 if "v4" in parts else 1


@cache
def record_of(opcode: str) -> str:
    """Return the form of an instruction that is a record of the core, or ""."""
    row = opcode_of(opcode)
    parts = opcode.split(".")
    groups = [group.split() for group in row.free.split("|")]
    free = Counter[int]()
    fixed = []
    for part in parts:
        numbers = [number for number, group in enumerate(groups) if part in group]
        free.update(numbers)
        if not numbers:
            fixed.append(part)
    if max(free.values(), default=0) > 1:
        return ""
    if row.free and not _follows_rules(parts):
        return ""
    forms = dict[str, str]()
    for pattern, text in row.forms.items():
        forms.update(expanded(pattern, text))
    return forms.get(".".join(fixed), forms.get("*", ""))


def _follows_rules(parts: list[str]) -> bool:
    """Return whether an opcode has the words that others need, and none that others exclude."""
    ruled = {*parts}
    if "global" in ruled:  # a copy follows the rules of global memory
        ruled -= {*SHARED.split()}
    for names, needed in NEEDED.items():
        if not ruled.isdisjoint(names.split()) and ruled.isdisjoint(needed.split()):
            return False
    for names, excluded in EXCLUDED.items():
        if not ruled.isdisjoint(names.split()) and not ruled.isdisjoint(excluded.split()):
            return False
    return True
