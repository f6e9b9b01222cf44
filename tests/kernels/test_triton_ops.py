"""Triton kernels against the readable references, on small shapes with padded tiles."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from tests.kernels.interpreted import CUDA, DEVICE, on_device, packed, poisoned  # isort: skip

from engine.rope import rope_turns
from kernels.attention import attention, key_spans
from kernels.attention.reference import attend
from kernels.attn_out import AttnOut, attn_out
from kernels.compressor import Compressor, compress_layer
from kernels.compressor.reference import compress as compressed
from kernels.experts import Experts, mix_all
from kernels.hyper_connections import HyperConnection, hc_head, hc_post, hc_pre, hc_turn
from kernels.hyper_connections import reference as hc
from kernels.indexer import Indexer, select_rows
from kernels.indexer.reference import index_scores, select
from kernels.mode import EXACT, TILES, Mode
from kernels.qkv import Qkv, qkv
from kernels.qkv.reference import kv_rows, queries, rms_norm, rotate
from kernels.rounding.reference import fp4_blocks, hadamard
from kernels.router import Router, route
from kernels.top import best_of
from kernels.top.reference import best_of as best
from tests.kernels.closeness import assert_close

pytestmark = pytest.mark.gpu if CUDA else []

EPS, EXACT_RATIO = 1e-6, 5e-6


def normal(seed: int, *shape: int) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


def host(tensor: torch.Tensor) -> np.ndarray:
    return tensor.cpu().numpy()


def places(first: int, rows: int) -> torch.Tensor:
    return torch.arange(first, first + rows, device=DEVICE)


def test_streams_are_collapsed_mixed_and_turned() -> None:
    rows, width = 3, 80
    streams = normal(0, rows, 4, width)
    fn, base, scale = normal(1, 24, 4 * width) / 18, normal(2, 24), torch.tensor([0.8, 0.6, 1.2])
    norm, y = normal(3, width), normal(4, rows, width)
    weights = HyperConnection(packed(fn, "F16"), on_device(base), on_device(scale))
    exact = (fn.half().float(), base, scale, EPS, EPS, 20)

    def run(part: slice) -> list[torch.Tensor]:
        n = part.stop - part.start
        flat = on_device(streams.flatten(1)[part])
        x, post, comb = poisoned(n, width), poisoned(n, 4), poisoned(n, 16)
        rest = (weights, on_device(norm), EPS, EPS, 20)
        hc_pre(flat, *rest, x, post, comb, places(0, n), EXACT)
        first = x.clone()
        whole = on_device(y[part])
        pieces = torch.stack([whole / 4, whole / 2, whole / 4], 1)
        hc_turn(pieces, flat, *rest, x, post, comb, places(0, n), EXACT)
        turned = flat.clone()
        hc_post(whole.clone(), post, comb, EPS, 20, flat)  # what wrote y must run right before
        return [first, turned, x, flat]

    found = run(slice(0, rows))
    x, post, comb = hc.hc_pre(streams, *exact)
    turned = hc.hc_post(y, streams, post, comb)
    after = hc.hc_pre(turned, *exact)

    def normed(row: torch.Tensor) -> torch.Tensor:
        return row * torch.rsqrt(row.square().mean(-1, keepdim=True) + EPS) * norm

    last = hc.hc_post(y, turned, *after[1:])
    expected = [normed(x), turned.flatten(1), normed(after[0]), last.flatten(1)]
    for i, (wanted, got) in enumerate(zip(expected, found, strict=True)):
        assert_close(str(i), wanted, host(got), 2e-5)
    for i, (alone, got) in enumerate(zip(run(slice(2, 3)), found, strict=True)):
        assert torch.equal(alone[0], got[2]), i

    head = HyperConnection(packed(fn[:4], "F16"), on_device(base[:4]), on_device(scale[:1]))
    out = poisoned(rows, width)
    hc_head(on_device(streams.flatten(1)), head, EPS, EPS, out, places(0, rows), EXACT)
    wanted = hc.hc_head(streams, fn[:4].half().float(), base[:4], scale[:1], EPS, EPS)
    assert_close("head", wanted, host(out), 2e-5)


@pytest.mark.parametrize("joined", [True, False])
def test_queries_and_stored_rows(joined: bool) -> None:
    rows, dim, rank, heads, width, rope, slots = 3, 32, 32, 2, 96, 32, 8
    x, q_a, kv = normal(0, rows, dim), normal(1, rank, dim), normal(2, width, dim)
    q_b, q_norm, kv_norm = normal(3, heads * width, rank), normal(4, rank), normal(5, width)
    turns = torch.from_numpy(rope_turns(20, rope, 10000.0, None))
    both = packed(torch.cat([q_a, kv])) if joined else packed(q_a)
    weights = Qkv(
        both, on_device(q_norm), packed(q_b), None if joined else packed(kv), on_device(kv_norm)
    )
    qr, q = poisoned(rows, rank), poisoned(rows, heads * width)
    ring = poisoned(slots, width)
    origin = torch.zeros(1, dtype=torch.int64, device=DEVICE)
    qkv(
        on_device(x), places(6, rows), weights, on_device(turns), EPS, heads, "fp8+f16", qr, q,
        ring, origin, EXACT,
    )  # fmt: skip
    wanted_qr, _ = queries(x, q_a, q_norm, q_b, turns[6:9], heads, EPS)
    assert_close("qr", wanted_qr, host(qr), EXACT_RATIO)
    assert_close("q", wanted_qr @ q_b.T, host(q), EXACT_RATIO)  # attention norms and rotates them
    stored = kv_rows(x, kv, kv_norm, turns[6:9], EPS, True)
    assert_close("rows", stored, host(ring[[6, 7, 0]]), 2e-2)  # a last bit may round elsewhere
    same = (host(ring[[6, 7, 0]]) == stored.numpy()).mean()
    assert same > 0.98
    assert torch.isnan(ring[[1, 2, 3, 4, 5]]).all()

    again, seen = poisoned(rows, heads * width), poisoned(rows, rank)

    def beside() -> None:
        seen.copy_(qr)  # what reads qr, as the product after it does

    qkv(
        on_device(x), places(6, rows), weights, on_device(turns), EPS, heads, "fp8+f16", qr, again,
        ring, origin, EXACT, beside,
    )  # fmt: skip
    assert torch.equal(again, q)
    assert torch.equal(seen, qr)


class Frontier:
    """The arrays of a layer's state that a compressor reads and writes."""

    def __init__(self, ratio: int, width: int, index_width: int, tokens: int) -> None:
        columns = 2 if ratio == 4 else 1
        ring = columns * ratio + 32
        self.frontier_kv, self.frontier_score = (poisoned(ring, columns * width) for _ in range(2))
        self.index_frontier_kv = poisoned(ring, columns * index_width)
        self.index_frontier_score = poisoned(ring, columns * index_width)
        self.comp = poisoned(tokens // ratio + 1, width)
        self.index = poisoned(tokens // ratio + 1, index_width)


@pytest.mark.parametrize(
    ("ratio", "tokens", "sizes", "rounded"),
    [(4, 13, (1, 3, 6, 3), True), (4, 13, (5,), False), (128, 130, (32,), True)],
)
def test_both_compressors(ratio: int, tokens: int, sizes: tuple[int, ...], rounded: bool) -> None:
    dim, width, index_width, rope = 16, 96, 32, 32
    coff = 2 if ratio == 4 else 1
    x = normal(0, tokens, dim).half().float()  # so that tiles round nothing
    turns = torch.from_numpy(rope_turns(tokens, rope, 160000.0, None))
    made = []
    for seed, size in ((1, width), (5, index_width)):
        kv, gate = ((normal(seed + i, coff * size, dim) / 4).half().float() for i in range(2))
        made.append((kv, gate, normal(seed + 2, ratio, coff * size) / 2, normal(seed + 3, size)))
    used = made if ratio == 4 else made[:1]
    whole = packed(torch.cat([matrix for kv, gate, *_ in used for matrix in (kv, gate)]), "F16")
    own, index = (Compressor(whole, None, on_device(m[2]), on_device(m[3])) for m in made)
    state = Frontier(ratio, width, index_width if ratio == 4 else 0, tokens)
    start = turn = 0
    while start < tokens:
        n = min(sizes[turn % len(sizes)], tokens - start)
        compress_layer(
            on_device(x[start : start + n]), places(start, n), own, index if ratio == 4 else None,
            on_device(turns), EPS, ratio, rounded, state, TILES,
        )  # fmt: skip
        start, turn = start + n, turn + 1
    wanted = [(made[0], state.comp, "fp8" if rounded else "plain")]
    if ratio == 4:
        wanted.append((made[1], state.index, "hadamard+fp4" if rounded else "hadamard"))
    for weights, rows, finish in wanted:
        expected = compressed(x, *weights, turns, EPS, ratio, finish)
        assert_close(finish, expected, host(rows[: tokens // ratio]), 5e-2 if rounded else 2e-5)
        assert torch.isnan(rows[tokens // ratio :]).all()


@pytest.mark.parametrize(("mode", "ratio"), [(EXACT, EXACT_RATIO), (TILES, 2e-3)])
def test_attention_over_a_window_and_more(mode: Mode, ratio: float) -> None:
    heads, width, rope, window, first, rows, k = 3, 96, 32, 40, 61, 3, 5
    ring, extra = normal(0, window + 32, width), normal(1, 20, width)
    q, sinks = normal(2, rows, heads * width), normal(3, heads)
    turns = torch.from_numpy(rope_turns(80, rope, 10000.0, None))
    selected = torch.tensor([[0, 3, 4, 9, 14]] * rows, dtype=torch.int32)
    counts = torch.tensor([k, -1, k], dtype=torch.int32)

    def run(part: slice, counts: torch.Tensor = counts, tokens: int = 0) -> torch.Tensor:
        n = part.stop - part.start
        spans = torch.zeros((n, 3), dtype=torch.int64, device=DEVICE)
        at = places(first + part.start, n)
        key_spans(at, window, 4, spans)
        out = poisoned(n, heads * width)
        attention(
            on_device(q[part]), on_device(ring), on_device(extra), spans, on_device(selected[part]),
            on_device(counts[part]), on_device(sinks), at, on_device(turns), EPS, out, mode,
            reach=(window, 20), ratio=tokens,
        )  # fmt: skip
        return out

    out = run(slice(0, rows))
    expected = []
    queried = rotate(rms_norm(q.view(rows, heads, width), None, EPS), turns[first : first + rows])
    for r in range(rows):
        position = first + r
        slots = [p % len(ring) for p in range(position - window + 1, position + 1)]
        chosen = selected[r].long() if counts[r] >= 0 else torch.arange((position + 1) // 4)
        keys = torch.cat([ring[slots], extra[chosen]])
        expected.append(attend(queried[r], keys, sinks, turns[position]).flatten())
    assert_close("out", torch.stack(expected), host(out), ratio)
    for r in range(rows):
        assert torch.equal(run(slice(r, r + 1))[0], out[r])
    whole, every = slice(0, rows), torch.full((rows,), -1, dtype=torch.int32)
    assert torch.equal(run(whole, every, 4), run(whole, every))  # where rows are read early


@pytest.mark.parametrize("mode", [TILES, Mode(batch=True, round_rows=True)])
def test_attention_over_large_keys_stays_in_range(mode: Mode) -> None:
    heads, width, large = 3, 64, 40000.0
    keys, spans = torch.full((64, width), large), poisoned(1, 3, dtype=torch.int64)
    none = on_device(torch.tensor([-1], dtype=torch.int32))
    key_spans(places(63, 1), 64, 0, spans)
    out = poisoned(1, heads * width)
    attention(
        on_device(normal(0, 1, heads * width)), on_device(keys), on_device(keys[:0]), spans,
        none[:, None], none, on_device(torch.full((heads,), -1e9)), places(63, 1),
        on_device(torch.tensor([[1.0, 0.0] * 16] * 64)), EPS, out, mode, reach=(64, 0),
    )  # fmt: skip
    assert_close("out", torch.full((1, heads * width), large), host(out), 1e-3)


@pytest.mark.parametrize("group", [64, 16])  # fewer than rows: several groups
@pytest.mark.parametrize("rounded", [False, True])
def test_indexer_selects_the_best_rows(
    rounded: bool, group: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("kernels.indexer.triton_kernel.KEYS", group)
    dim, rank, heads, width, rope, k, capacity = 16, 512, 3, 64, 32, 4, 70
    x, qr = normal(0, 3, dim), normal(1, 3, rank) / 8
    q_b, proj = normal(2, heads * width, rank), normal(3, heads, dim)
    rows = hadamard(normal(4, capacity, width))
    rows = fp4_blocks(rows) if rounded else rows
    turns = torch.from_numpy(rope_turns(300, rope, 160000.0, None))
    first = 270
    selected, counts = poisoned(3, k, dtype=torch.int32), poisoned(3, dtype=torch.int32)
    gaps = poisoned(3)
    weights = Indexer(packed(q_b), packed(proj))
    select_rows(
        on_device(x), on_device(qr), places(first, 3), weights, on_device(turns), heads, 4, k,
        rounded, on_device(rows), selected, counts, gaps, EXACT,
    )  # fmt: skip
    q = rotate((qr @ q_b.T).unflatten(-1, (heads, width)), turns[first : first + 3])
    q = hadamard(q)
    q = fp4_blocks(q) if rounded else q
    for r in range(3):
        scores = index_scores(q[r], (x @ proj.T)[r], rows[: (first + r + 1) // 4])
        assert sorted(selected[r].tolist()) == select(scores, k).tolist()
        order = scores.sort(descending=True).values
        assert float(gaps[r]) == pytest.approx(float(order[k - 1] - order[k]), rel=1e-3, abs=1e-4)
    assert counts.tolist() == [k] * 3
    select_rows(
        on_device(x), on_device(qr), places(14, 3), weights, on_device(turns), heads, 4, k,
        rounded, on_device(rows), selected, counts, gaps, EXACT,
    )  # fmt: skip
    assert counts.tolist() == [-1] * 3
    assert torch.isinf(gaps).all()


@pytest.mark.parametrize("group", [64, 16])
def test_equal_scores_take_the_lower_rows(group: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kernels.indexer.triton_kernel.KEYS", group)
    rows = torch.ones(40, 32)
    selected, counts = poisoned(1, 3, dtype=torch.int32), poisoned(1, dtype=torch.int32)
    gaps = poisoned(1)
    turns = torch.from_numpy(rope_turns(200, 32, 160000.0, None))
    select_rows(
        torch.ones(1, 16, device=DEVICE), torch.ones(1, 16, device=DEVICE), places(140, 1),
        Indexer(packed(torch.ones(32, 16)), packed(torch.ones(1, 16))), on_device(turns), 1, 4, 3,
        False, on_device(rows), selected, counts, gaps, EXACT,
    )  # fmt: skip
    assert selected.tolist() == [[0, 1, 2]]
    assert gaps.tolist() == [0]


def test_router_scores_table_and_pins() -> None:
    rows, dim, count, k = 4, 16, 11, 3
    x, gate, bias = normal(0, rows, dim), normal(1, count, dim), normal(2, count)
    table = torch.tensor([[1, 4, 9], [10, 0, 2]], dtype=torch.int32)
    none = torch.full((rows, k), -1, dtype=torch.int32)
    pinned = none.clone()
    pinned[1] = torch.tensor([2, 5, 7], dtype=torch.int32)
    pinned[3] = torch.tensor([4, 4, 9], dtype=torch.int32)  # one expert twice
    ids = torch.tensor([0, 1, 1, 0])
    scores = torch.nn.functional.softplus(x @ gate.T).sqrt()

    def run(weights: Router, forced: torch.Tensor) -> tuple[torch.Tensor, ...]:
        experts, gaps = poisoned(rows, k, dtype=torch.int32), poisoned(rows)
        factors = poisoned(rows, k)
        route(
            on_device(x), on_device(ids), weights, on_device(forced), 1.5, experts, factors, gaps,
            places(0, rows), EXACT,
        )  # fmt: skip
        return experts.cpu(), factors.cpu(), gaps.cpu()

    empty = torch.zeros(0), torch.zeros((0, 0), dtype=torch.int32)
    choosing = Router(packed(gate), on_device(bias), on_device(empty[1]))
    hashed = Router(packed(gate), on_device(empty[0]), on_device(table))
    top = (scores + bias).topk(k + 1)
    wanted = [top.indices[:, :k].sort().values, table[ids].sort().values.long()]
    for weights, chosen in zip((choosing, hashed), wanted, strict=True):
        experts, factors, gaps = run(weights, none)
        assert experts.long().equal(chosen)
        share = scores.gather(1, chosen)
        assert_close("weights", 1.5 * share / share.sum(1, keepdim=True), factors.numpy(), 1e-5)
        expected = top.values[:, k - 1] - top.values[:, k]
        hidden = torch.full_like(expected, float("inf"))
        assert torch.allclose(gaps, expected if weights is choosing else hidden, atol=1e-5)
    experts, factors, gaps = run(choosing, pinned)
    assert experts[1].tolist() == [2, 5, 7]
    assert experts[3].tolist() == [4, 4, 9]
    assert factors[3, 0] == factors[3, 1]
    assert float(factors[3].sum()) == pytest.approx(1.5)
    assert torch.isinf(gaps[1])
    assert not torch.isinf(gaps[0])


def test_routed_and_shared_experts_in_one_numerics_and_in_two() -> None:
    rows, dim, hidden, k, clamp = 2, 32, 32, 2, 1.5
    x, full = normal(0, rows, dim), torch.ones(rows, 1)
    chosen = torch.tensor([[0, 2], [1, 2]], dtype=torch.int32)
    weights, one = normal(1, rows, k).abs(), torch.zeros(rows, 1, dtype=torch.int32)
    ups, downs = normal(2, 3, 2 * hidden, dim) / 6, normal(3, 3, dim, hidden) / 6
    shared_up, shared_down = normal(4, 2 * hidden, dim) / 6, normal(5, dim, hidden) / 6

    def expert(row: torch.Tensor, both: torch.Tensor, down: torch.Tensor) -> torch.Tensor:
        gate, up = (both @ row).chunk(2)
        gate, up = gate.clamp(max=clamp), up.clamp(-clamp, clamp)
        return down @ (torch.nn.functional.silu(gate) * up)

    wanted = torch.stack([expert(row, shared_up, shared_down) for row in x])
    for r, row in enumerate(x):
        for e, factor in zip(chosen[r].tolist(), weights[r], strict=True):
            wanted[r] += factor * expert(row, ups[e], downs[e])

    def run(mode: Mode, shared_mode: Mode) -> torch.Tensor:
        pieces = mix_all(
            on_device(x), on_device(chosen), on_device(weights),
            Experts(packed(ups), packed(downs)), Experts(packed(shared_up), packed(shared_down)),
            on_device(one), on_device(full), clamp, poisoned(0), places(0, rows), mode, shared_mode,
        )  # fmt: skip
        assert pieces.dim() == 3
        return pieces.sum(1).cpu()

    assert_close("exact", wanted, run(EXACT, EXACT).numpy(), EXACT_RATIO)
    assert_close("tiles", wanted, run(TILES, TILES).numpy(), 2e-3)
    assert_close("both", wanted, run(TILES, EXACT).numpy(), 2e-3)
    noisy = run(EXACT, Mode(ulps=1 << 16, salt=3)) - run(EXACT, EXACT)
    assert 0 < float(noisy.abs().max()) < 0.1 * float(wanted.abs().max())


def test_best_tokens_without_the_excluded_ones() -> None:
    logits = normal(0, 2, 5000).round(decimals=1)  # ties, over two chunks
    excluded = torch.tensor([[int(logits[0].argmax()), -1], [7, 9]])
    ids, values = poisoned(2, 5, dtype=torch.int64), poisoned(2, 5)
    best_of(on_device(logits), on_device(excluded), ids, values)
    wanted = best(logits, excluded, 5)
    assert ids.cpu().equal(wanted[0])
    assert values.cpu().equal(wanted[1])


def test_a_row_that_holds_a_nan_says_so_in_its_best_value() -> None:
    logits = normal(0, 2, 5000)
    logits[0, [4500, 4700]], logits[1] = float("nan"), float("nan")
    none = torch.full((2, 1), -1)
    ids, values = poisoned(2, 1, dtype=torch.int64), poisoned(2, 1)
    best_of(on_device(logits), on_device(none), ids, values)
    assert ids.flatten().tolist() == [4500, 0]
    assert torch.isinf(values).all()


def test_best_rows_are_named_by_their_tokens() -> None:
    logits, tokens = normal(0, 2, 5000), torch.arange(5000) * 3 + 1
    none = torch.full((2, 1), -1)
    ids, values = poisoned(2, 2, dtype=torch.int64), poisoned(2, 2)
    best_of(on_device(logits), on_device(none), ids, values, on_device(tokens))
    wanted = best(logits, none, 2, tokens)
    assert ids.cpu().equal(wanted[0])
    assert values.cpu().equal(wanted[1])


def test_faults_are_those_of_the_formula() -> None:
    o, a, b = normal(0, 2, 64), normal(1, 2, 8, 32), normal(2, 24, 16)
    weights = AttnOut(packed(a), packed(b))
    at, ulps, room = places(5, 2), 1 << 16, poisoned(0)
    exact, noisy, other = (
        attn_out(on_device(o), weights, room, at, mode).sum(1)
        for mode in (EXACT, Mode(ulps=ulps, salt=3), Mode(ulps=ulps, salt=4))
    )
    ulp = torch.exp2(torch.floor(torch.log2(exact.abs())) - 23)
    units = ((noisy - exact) / ulp / ulps).cpu()
    assert units.abs().max() <= 1.001
    assert units.std() > 0.4
    assert not noisy.equal(other)
    mask = (1 << 64) - 1

    def mixed(word: int) -> int:
        word = (word ^ (word >> 30)) * 0xBF58476D1CE4E5B9 & mask
        word = (word ^ (word >> 27)) * 0x94D049BB133111EB & mask
        return word ^ (word >> 31)

    for r in range(2):
        base = mixed(3 + (5 + r) * 0x9E3779B97F4A7C15 & mask)
        for i in range(24):
            word = mixed(base + (i + 1) * 0xD1B54A32D192ED03 & mask)
            assert float(units[r, i]) == pytest.approx((word >> 11) * 2.0**-52 - 1, abs=2e-3)
