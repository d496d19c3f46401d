#!/usr/bin/env python3
"""Peer baseline: log-probabilities of one word a token, and the entropy, with gradients, in PyTorch.

What a user would otherwise compose on the same machine for a policy gradient with an entropy bonus: all
log-probabilities, `gather`, `-(p log p).sum(-1)`, forward and backward of `-mean(advantage * log p) - 0.01 * mean(entropy)`. Prints the median
time of a step and the peak memory that it adds, of the process or of the GPU.

N tokens, H hidden size, d embedding size, V vocabulary, K mixture components.

Example:
  python torch_log_probs.py --head mos --tokens 840 --entropy --json
"""
import json, statistics

import torch
import torch.nn.functional as F
from measure import THREADS, add_numbers, added_peak, arguments, parser, times


def main():
    a = parser(__doc__)
    a.add_argument("--head", choices=["softmax", "mos"], default="mos")
    a.add_argument("--entropy", action="store_true")
    add_numbers(a, tokens=840, d_hidden=620, d_embedding=280, vocab=10_000, components=15, threads=THREADS)
    a.add_argument("--device", choices=["cpu", "cuda"], default="cpu")
    a.add_argument("--bf16", action="store_true")
    add_numbers(a, repeats=7)
    a.add_argument("--json", action="store_true")
    o = arguments(a)
    n, d, v, k = o.tokens, o.d_embedding, o.vocab, o.components if o.head == "mos" else 1
    h = o.d_hidden if o.head == "mos" else d
    dev = o.device
    p = lambda *s, scale=0.1: (torch.randn(*s) * scale).to(dev).requires_grad_()
    g, w, b = p(n, h, scale=1.0), p(v, d), p(v)
    y, advantage = torch.randint(0, v, (n, 1)).to(dev), torch.randn(n, 1).to(dev)
    wp, wl, bl = (p(k, h), p(k * d, h), p(k * d)) if o.head == "mos" else (None, None, None)

    def loss():
        if o.head == "softmax":
            log_probs = F.log_softmax(F.linear(g, w, b).float(), -1)
        else:
            z = F.linear(torch.tanh(F.linear(g, wl, bl)).view(-1, d), w, b).float()
            prior = F.log_softmax(F.linear(g, wp).float(), -1)
            log_probs = torch.logsumexp(F.log_softmax(z, -1).view(n, k, v) + prior.unsqueeze(2), 1)
        value = -(advantage * log_probs.gather(1, y)).mean()
        if o.entropy:
            value = value + 0.01 * (log_probs.exp() * log_probs).sum(-1).mean()
        return value

    def run():
        for t in (g, w, b, wp, wl, bl):
            if t is not None:
                t.grad = None
        with torch.autocast(dev, dtype=torch.bfloat16, enabled=o.bf16):
            x = loss()
        x.backward()
        return x.item()  # which waits for the GPU

    # What PyTorch loads with the first call is no part of what a step adds.
    F.cross_entropy(F.linear(p(4, 8), p(16, 8), p(16)), torch.arange(4, device=dev)).backward()
    value, peak = added_peak(run, dev)
    median = statistics.median(times(run, o.repeats))
    out = dict(peer="torch " + torch.__version__, head=o.head, entropy=o.entropy, bf16=o.bf16, tokens=n, vocab=v, loss=value,
               median_ms=median * 1e3, tokens_per_s=n / median, added_peak_bytes=peak)
    print(json.dumps(out) if o.json else out)


if __name__ == "__main__":
    main()
