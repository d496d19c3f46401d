#!/usr/bin/env python3
"""Peer: one training step (forward and backward of the mean loss) of a softmax output layer over a large vocabulary, in PyTorch.

  plain    F.linear, then F.cross_entropy: all logits exist at once
  chunked  F.linear_cross_entropy with LinearCrossEntropyOptions (PyTorch 2.13 and later): logits a chunk of tokens at a time

Prints one JSON object: the median time of a step, tokens/s, the growth of the process's peak memory over two steps
(gradients included, parameters not), and the loss. N tokens, d width of the hidden state, V vocabulary.
Example: python torch_linear_cross_entropy.py --tokens 2048 --d 1024 --vocab 131072 --mode chunked
"""
import json, statistics, warnings

import torch
import torch.nn.functional as F

from measure import THREADS, add_numbers, added_peak, arguments, parser, times


def main():
    a = parser(__doc__)
    add_numbers(a, tokens=2048, d=1024, vocab=131_072, repeats=3)
    a.add_argument("--mode", choices=["plain", "chunked"], default="plain")
    a.add_argument("--dtype", choices=["f32", "bf16"], default="f32", help="of parameters and hidden states")
    a.add_argument("--bf16", action="store_true", help="autocast to bfloat16: parameters and hidden states stay f32")
    add_numbers(a, label_smoothing=0.0)
    a.add_argument("--no-bias", action="store_true")
    add_numbers(a, threads=THREADS)
    c = a.add_argument_group("chunked")
    c.add_argument("--chunk-tokens", type=int, help="tokens of a chunk, in place of PyTorch's own choice")
    c.add_argument("--chunking", default="auto", help="PyTorch's chunking_method: auto, aspect_ratio or aspect_ratio:N")
    c.add_argument("--acc-policy", choices=["auto", "accurate", "compact"], default="auto")
    o = arguments(a)
    if o.mode == "chunked" and o.label_smoothing:
        a.error("PyTorch's chunked form has no label smoothing: it would compute the plain one")
    if o.bf16 and o.dtype == "bf16":
        a.error("--bf16 rounds parameters of f32, and --dtype bf16 has none")
    dtype = dict(f32=torch.float32, bf16=torch.bfloat16)[o.dtype]
    tensor = lambda *shape, scale: (torch.randn(*shape, dtype=dtype) * scale).requires_grad_()
    hidden = tensor(o.tokens, o.d, scale=1.0)
    weight = tensor(o.vocab, o.d, scale=0.05)
    bias = None if o.no_bias else tensor(o.vocab, scale=0.05)
    targets = torch.randint(0, o.vocab, (o.tokens,))

    if o.mode == "plain":
        loss = lambda h, w, b, y: F.cross_entropy(F.linear(h, w, b), y, label_smoothing=o.label_smoothing)
    else:
        # What the chunked form does not support it computes by the plain one, with a warning.
        warnings.filterwarnings("error", message=".*linear_cross_entropy.*")
        options = torch.nn.LinearCrossEntropyOptions(
            batch_chunk_size=o.chunk_tokens,
            chunking_method=None if o.chunk_tokens else o.chunking,
            acc_policy=o.acc_policy,
        )
        loss = lambda h, w, b, y: F.linear_cross_entropy(h, w, y, linear_bias=b, options=options)

    def step():
        for t in (hidden, weight, bias):
            if t is not None:
                t.grad = None
        with torch.autocast("cpu", dtype=torch.bfloat16, enabled=o.bf16):
            value = loss(hidden, weight, bias, targets)
        value.backward()
        return value.item()

    # What PyTorch loads with the first call is no part of what a step adds.
    loss(tensor(4, 8, scale=1.0), tensor(16, 8, scale=1.0), tensor(16, scale=1.0), torch.arange(4)).backward()
    value, added = added_peak(step)
    seconds = statistics.median(times(step, o.repeats))
    print(json.dumps(dict(
        peer="torch " + torch.__version__, mode=o.mode, dtype=o.dtype, bf16=o.bf16, tokens=o.tokens, d=o.d, vocab=o.vocab,
        label_smoothing=o.label_smoothing, threads=o.threads, median_ms=1e3 * seconds, tokens_per_s=o.tokens / seconds,
        added_peak_bytes=added, loss=value,
    )))


if __name__ == "__main__":
    main()
