#!/usr/bin/env python3
"""Peer: one prediction of an output head, without gradients, in PyTorch.

  nll        minus the log-probability of a given word for each token
  log-probs  all log-probabilities, [N, V]
  top-k      the most probable words of each token with their log-probabilities
  sample     a word drawn for each token, at temperature 1
  decode     the most probable word of a single token: what a decoder waits for

Each is what eager PyTorch has for it: the mixture in log space (log-softmax, then logsumexp over the components), then gather,
topk, multinomial or argmax. A PLIF's table is made beforehand. Prints the median time of a call, tokens/s, and the growth of
the process's peak memory over two calls, results included. N tokens, H hidden size, d embedding size, V vocabulary, K components.
Example: python torch_inference.py --head mos --mode top-k --tokens 840 --json
"""
import json, statistics

import torch
import torch.nn.functional as F

from measure import THREADS, add_numbers, added_peak, arguments, parser, times

BOUND = 20.0  # of a PLIF
CALLS = 20  # timed calls of `decode` for each repeat


class Head:
    """Random parameters, and the log-probabilities [N, V] for hidden states [N, H]."""

    def __init__(self, o):
        normal = lambda *shape: 0.1 * torch.randn(*shape)
        d, v = o.d_embedding, o.vocab
        self.kind, self.d = o.head, d
        self.k = o.components if o.head in ("moc", "mos") else None
        self.width = o.d_hidden if self.k else d
        self.weight, self.bias = normal(v, d), normal(v)
        if self.k:
            self.prior = normal(self.k, self.width)
            self.latent, self.latent_bias = normal(self.k * d, self.width), normal(self.k * d)
        if o.head == "plif":
            self.step = 2 * BOUND / o.knots
            self.slopes = F.softplus(normal(o.knots))
            self.heights = torch.cumsum(self.slopes, 0) - self.slopes

    def map(self, z):
        if self.kind == "sigsoftmax":
            return 2 * z - F.softplus(z)
        if self.kind == "plif":
            piece = ((z + BOUND) / self.step).floor().long().clamp_(0, len(self.slopes) - 1)
            return (z + BOUND - self.step * piece) * self.slopes[piece] + self.step * self.heights[piece]
        return z

    def log_probs(self, hidden):
        # Under autocast products come out in bfloat16; everything after them is computed in f32.
        if not self.k:
            return F.log_softmax(self.map(F.linear(hidden, self.weight, self.bias)).float(), -1)
        contexts = torch.tanh(F.linear(hidden, self.latent, self.latent_bias)).view(-1, self.k, self.d)
        prior = F.log_softmax(F.linear(hidden, self.prior).float(), -1)
        if self.kind == "moc":
            context = (contexts * prior.exp().unsqueeze(2)).sum(1).to(contexts.dtype)
            return F.log_softmax(F.linear(context, self.weight, self.bias).float(), -1)
        # The logits have no name: they must not outlive their log-softmax.
        components = F.log_softmax(F.linear(contexts.view(-1, self.d), self.weight, self.bias).float(), -1)
        components = components.view(-1, self.k, len(self.weight))
        return torch.logsumexp(components + prior.unsqueeze(2), 1)


def main():
    a = parser(__doc__)
    a.add_argument("--head", choices=["softmax", "moc", "mos", "sigsoftmax", "plif"], default="mos")
    a.add_argument("--mode", choices=["nll", "log-probs", "top-k", "sample", "decode"], default="top-k")
    add_numbers(a, tokens=840, d_hidden=620, d_embedding=280, vocab=10_000, components=15, knots=100_000)
    a.add_argument("--k", type=int, default=10, help="words that top-k lists")
    a.add_argument("--bf16", action="store_true", help="autocast to bfloat16")
    add_numbers(a, threads=THREADS, repeats=9)
    a.add_argument("--json", action="store_true")
    o = arguments(a)
    tokens = 1 if o.mode == "decode" else o.tokens
    head = Head(o)
    hidden, words = torch.randn(tokens, head.width), torch.randint(0, o.vocab, (tokens, 1))

    predict = {
        "nll": lambda log_probs, words: -log_probs.gather(1, words).squeeze(1),
        "log-probs": lambda log_probs, _: log_probs,
        "top-k": lambda log_probs, _: log_probs.topk(o.k, -1),
        "sample": lambda log_probs, _: torch.multinomial(log_probs.exp(), 1),
        "decode": lambda log_probs, _: log_probs.argmax(-1),
    }[o.mode]

    def call(hidden=hidden, words=words):
        with torch.no_grad(), torch.autocast("cpu", dtype=torch.bfloat16, enabled=o.bf16):
            predict(head.log_probs(hidden), words)

    # What PyTorch loads with the first call is no part of what a call adds.
    call(hidden[:1], words[:1])
    _, added = added_peak(call)
    seconds = statistics.median(times(call, o.repeats * (CALLS if o.mode == "decode" else 1)))
    out = dict(peer="torch " + torch.__version__, head=o.head, mode=o.mode, bf16=o.bf16, threads=o.threads, tokens=tokens,
               median_ms=1e3 * seconds, tokens_per_s=tokens / seconds, added_peak_bytes=added)
    print(json.dumps(out) if o.json else out)


if __name__ == "__main__":
    main()
