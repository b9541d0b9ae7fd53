"""A hand-optimized PyTorch model without abstractions, as the baseline for heedful's speed.

A pre-norm Transformer with tied embeddings in one file: packed projections, fused attention in fp32, dropout masks from
cheap random bytes, projection and cross-entropy in chunks with the gradient computed in the forward pass, and a
preallocated cache for greedy decoding. It has every optimization that heedful has, so the ratio of the two is the
overhead of heedful's structure.
"""

import math
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn


def keep(x: Tensor, p: float) -> tuple[Tensor, float]:
    threshold = round((1 - p) * 256)
    n = x.numel()
    words = np.random.Generator(np.random.SFC64(int(torch.randint(2**62, ())))).integers(
        0, 2**64, size=(n + 7) // 8, dtype=np.uint64
    )
    return torch.from_numpy((words.view(np.uint8)[:n] < threshold).view(np.uint8)).view(x.shape), 256 / threshold


class Drop(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, p: float) -> Tensor:
        mask, ctx.scale = keep(x, p)
        ctx.save_for_backward(mask)
        return (x * mask.to(x.dtype)).mul_(ctx.scale)

    @staticmethod
    def backward(ctx: Any, *g: Tensor) -> tuple[Tensor, None]:
        return (g[0] * ctx.saved_tensors[0].to(g[0].dtype)).mul_(ctx.scale), None


class DropAdd(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, residual: Tensor, x: Tensor, p: float) -> Tensor:
        mask, ctx.scale = keep(x, p)
        ctx.save_for_backward(mask)
        ctx.dtype = x.dtype
        return torch.addcmul(residual, x.to(residual.dtype), mask.to(residual.dtype), value=ctx.scale)

    @staticmethod
    def backward(ctx: Any, *g: Tensor) -> tuple[Tensor, Tensor, None]:
        return g[0], (g[0] * ctx.saved_tensors[0].to(g[0].dtype)).mul_(ctx.scale).to(ctx.dtype), None


class CrossEntropy(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, h: Tensor, weight: Tensor, gold: Tensor, eps: float, chunk: int, low: torch.dtype) -> Tensor:
        n, vocabulary = len(h), len(weight)
        w, mean = weight.to(low), weight.mean(0)
        dh, dw = torch.empty_like(h), torch.zeros_like(weight)
        loss = torch.zeros(())
        buffer = torch.empty(min(chunk, n) + 63, vocabulary, dtype=low)
        order = torch.arange(chunk)
        for i in range(0, n, chunk):
            hc, t = h[i : i + chunk].to(low), gold[i : i + chunk, None]
            m = len(hc)
            hc = F.pad(hc, (0, 0, 0, -m % 64))  # a product of a new size costs 20 ms to set up
            full = torch.mm(hc, w.t(), out=buffer[: len(hc)])
            z = full[:m]
            top, at = z.amax(1, keepdim=True).float(), z.gather(1, t).float()
            p = torch.softmax(z, 1, out=z)
            lse = top - p.amax(1, keepdim=True).float().log()
            loss += ((lse - (1 - eps) * at).squeeze(1) - eps * (hc[:m].float() @ mean)).sum()
            p.index_put_((order[:m], t.squeeze(1)), ((at - lse).exp() - (1 - eps)).squeeze(1).to(low))
            full[m:] = 0
            dh[i : i + chunk] = (full @ w)[:m]
            if low == weight.dtype:
                dw.addmm_(full.t(), hc)
            else:
                dw += full.t() @ hc
        dh -= eps * mean
        dw -= (eps / vocabulary) * h.sum(0)
        ctx.grads = dh, dw
        return loss

    @staticmethod
    def backward(ctx: Any, *g: Tensor) -> tuple[Any, ...]:
        dh, dw = ctx.grads
        return dh.mul_(g[0]), dw.mul_(g[0]), None, None, None, None


def attention(q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None, causal: bool) -> Tensor:
    if q.dtype == torch.bfloat16:
        with torch.autocast("cpu", enabled=False):
            return F.scaled_dot_product_attention(q.float(), k.float(), v.float(), attn_mask=mask, is_causal=causal)
    return F.scaled_dot_product_attention(q, k, v, attn_mask=mask, is_causal=causal)


class Layer(nn.Module):
    def __init__(self, width: int, heads: int, inner: int, dropout: float, cross: bool) -> None:
        super().__init__()
        self.heads, self.p, self.width = heads, dropout, width
        self.n1, self.qkv, self.o = nn.LayerNorm(width), nn.Linear(width, 3 * width), nn.Linear(width, width)
        if cross:
            self.n2, self.q = nn.LayerNorm(width), nn.Linear(width, width)
            self.kv, self.co = nn.Linear(width, 2 * width), nn.Linear(width, width)
        self.n3, self.f1, self.f2 = nn.LayerNorm(width), nn.Linear(width, inner), nn.Linear(inner, width)

    def cut(self, x: Tensor, n: int) -> tuple[Tensor, ...]:
        return x.view(*x.shape[:2], n, self.heads, -1).permute(2, 0, 3, 1, 4).unbind(0)

    def drop(self, x: Tensor) -> Tensor:
        return Drop.apply(x, self.p) if self.training else x  # type: ignore[no-untyped-call]

    def add(self, x: Tensor, y: Tensor) -> Tensor:
        return DropAdd.apply(x, y, self.p) if self.training else x + y  # type: ignore[no-untyped-call]

    def forward(self, x: Tensor, mask: Tensor | None, memory: Tensor | None = None) -> Tensor:
        shape = x.shape
        q, k, v = self.cut(self.qkv(self.n1(x)), 3)
        a = attention(q, k, v, None if memory is not None else mask, memory is not None)
        x = self.add(x, self.o(a.transpose(1, 2).reshape(shape)))
        if memory is not None:
            (q,) = self.cut(self.q(self.n2(x)), 1)
            k, v = self.cut(self.kv(memory), 2)
            x = self.add(x, self.co(attention(q, k, v, mask, False).transpose(1, 2).reshape(shape)))
        return self.add(x, self.f2(self.drop(F.relu(self.f1(self.n3(x))))))


class Bare(nn.Module):
    """4+4 or 6+6 layers with tied embeddings."""

    def __init__(
        self, vocabulary: int, layers: int, width: int, inner: int, heads: int, dropout: float, slots: int = 256
    ) -> None:
        super().__init__()
        self.width, self.p = width, dropout
        self.embed = nn.Embedding(vocabulary, width)
        nn.init.normal_(self.embed.weight, std=width**-0.5)
        angle = torch.arange(slots)[:, None] * torch.exp(torch.arange(0, width, 2) * (-math.log(1e4) / width))
        self.register_buffer("positions", torch.stack((angle.sin(), angle.cos()), -1).flatten(1), persistent=False)
        self.encoder = nn.ModuleList(Layer(width, heads, inner, dropout, False) for _ in range(layers))
        self.decoder = nn.ModuleList(Layer(width, heads, inner, dropout, True) for _ in range(layers))
        self.ne, self.nd = nn.LayerNorm(width), nn.LayerNorm(width)

    def words(self, tokens: Tensor) -> Tensor:
        positions: Tensor = self.positions  # type: ignore[assignment]
        x = torch.add(positions[: tokens.size(1)], self.embed(tokens), alpha=math.sqrt(self.width))
        return Drop.apply(x, self.p) if self.training else x  # type: ignore[no-untyped-call]

    def encode(self, source: Tensor, mask: Tensor | None) -> Tensor:
        x = self.words(source)
        for layer in self.encoder:
            x = layer(x, mask)
        return self.ne(x)  # type: ignore[no-any-return]

    def loss(
        self, source: Tensor, mask: Tensor, inputs: Tensor, gold: Tensor, real: Tensor, low: torch.dtype
    ) -> Tensor:
        mask = mask[:, None, None, :]
        memory = self.encode(source, mask)
        x = self.words(inputs)
        for layer in self.decoder:
            x = layer(x, mask, memory)
        h = self.nd(x).flatten(0, 1).index_select(0, real)
        with torch.autocast("cpu", enabled=False):
            return CrossEntropy.apply(h.float(), self.embed.weight, gold, 0.1, 512, low)  # type: ignore[no-any-return, no-untyped-call]

    @torch.inference_mode()
    def greedy(self, source: Tensor, mask: Tensor, bos: int, steps: int) -> Tensor:
        """Decode exactly `steps` tokens per row with a preallocated cache."""
        seen = None if bool(mask.all()) else mask[:, None, None, :]
        memory = self.encode(source, seen)
        rows, heads, d = len(source), self.decoder[0].heads, self.width // self.decoder[0].heads  # type: ignore[operator]
        crosses = [layer.cut(layer.kv(memory), 2) for layer in self.decoder]  # type: ignore[operator]
        caches = [torch.empty(2, rows, heads, steps, d) for _ in self.decoder]  # type: ignore[call-overload]
        y, out = torch.full((rows,), bos), []
        for t in range(steps):
            h = self.embed(y) * math.sqrt(self.width) + self.positions[t]  # type: ignore[index]
            for layer, (k, v), cache in zip(self.decoder, crosses, caches, strict=True):
                q, cache[0][:, :, t : t + 1], cache[1][:, :, t : t + 1] = (
                    layer.qkv(layer.n1(h)).view(rows, 3, heads, 1, d).unbind(1)  # type: ignore[operator]
                )
                a = F.scaled_dot_product_attention(q, cache[0][:, :, : t + 1], cache[1][:, :, : t + 1])
                h = h + layer.o(a.reshape(rows, self.width))  # type: ignore[operator]
                q = layer.q(layer.n2(h)).view(rows, heads, 1, d)  # type: ignore[operator]
                a = F.scaled_dot_product_attention(q, k, v, attn_mask=seen)
                h = h + layer.co(a.reshape(rows, self.width))  # type: ignore[operator]
                h = h + layer.f2(F.relu(layer.f1(layer.n3(h))))  # type: ignore[operator]
            y = F.linear(self.nd(h), self.embed.weight).argmax(-1)
            out.append(y)
        return torch.stack(out, 1)


class Plain(nn.Module):
    """`torch.nn.Transformer` as in the tutorials, with a plain cross-entropy."""

    def __init__(
        self, vocabulary: int, layers: int, width: int, inner: int, heads: int, dropout: float, slots: int = 256
    ) -> None:
        super().__init__()
        self.bare = [Bare(2, 1, width, 1, 1, 0.0, slots)]  # for its position table only, kept out of the parameters
        self.width = width
        self.embed = nn.Embedding(vocabulary, width)
        nn.init.normal_(self.embed.weight, std=width**-0.5)
        self.dropout = nn.Dropout(dropout)
        self.body = nn.Transformer(width, heads, layers, layers, inner, dropout, batch_first=True, norm_first=True)

    def words(self, tokens: Tensor) -> Tensor:
        table: Tensor = self.bare[0].positions  # type: ignore[assignment]
        return self.dropout(self.embed(tokens) * math.sqrt(self.width) + table[: tokens.size(1)])  # type: ignore[no-any-return]

    def loss(
        self,
        source: Tensor,
        mask: Tensor,
        inputs: Tensor,
        gold: Tensor,
        real: Tensor,
        low: torch.dtype,  # noqa: ARG002
    ) -> Tensor:
        steps = inputs.size(1)
        future = torch.triu(torch.ones(steps, steps, dtype=torch.bool), 1)
        h = self.body(
            self.words(source),
            self.words(inputs),
            tgt_mask=future,
            src_key_padding_mask=~mask,
            memory_key_padding_mask=~mask,
            tgt_is_causal=True,
        )
        targets = torch.full((inputs.numel(),), -100).scatter_(0, real, gold)
        logits = F.linear(h, self.embed.weight).flatten(0, 1).to(torch.float32)
        return F.cross_entropy(logits, targets, label_smoothing=0.1, reduction="sum")
