#!/usr/bin/env python3
"""Peer: one training step (forward and backward of the mean loss) of torch.nn.AdaptiveLogSoftmaxWithLoss.

Target words are drawn by Zipf's law, the word of rank r with a probability proportional to 1/r, as `head_throughput --targets zipf`
does. Prints one JSON object: the median time of a step, tokens/s, the growth of the process's peak memory over two steps (gradients
included, parameters not), and the loss. N tokens, d width of the hidden state, V vocabulary.
Example: python torch_adaptive.py --tokens 2048 --d 512 --vocab 100000 --cutoffs 4000,20000
"""
import json, statistics

import torch

from measure import THREADS, add_numbers, added_peak, arguments, parser, times


def main():
    a = parser(__doc__)
    add_numbers(a, tokens=2048, d=512, vocab=100_000)
    a.add_argument("--cutoffs", default=None, help="first words of the clusters; by default a 25th and a fifth of the vocabulary")
    add_numbers(a, division=4.0, repeats=3, threads=THREADS)
    o = arguments(a)
    cutoffs = [int(word) for word in o.cutoffs.split(",")] if o.cutoffs else [o.vocab // 25, o.vocab // 5]
    head = torch.nn.AdaptiveLogSoftmaxWithLoss(o.d, o.vocab, cutoffs, div_value=o.division, head_bias=True)
    hidden = torch.randn(o.tokens, o.d, requires_grad=True)
    targets = torch.multinomial(1 / torch.arange(1, o.vocab + 1, dtype=torch.float64), o.tokens, replacement=True)

    def step():
        hidden.grad = None
        head.zero_grad(set_to_none=True)
        value = head(hidden, targets).loss
        value.backward()
        return value.item()

    # What PyTorch loads with the first call is no part of what a step adds.
    torch.nn.AdaptiveLogSoftmaxWithLoss(8, 16, [4])(torch.randn(4, 8), torch.arange(4)).loss.backward()
    value, added = added_peak(step)
    seconds = statistics.median(times(step, o.repeats))
    print(json.dumps(dict(
        peer="torch " + torch.__version__, mode="adaptive", tokens=o.tokens, d=o.d, vocab=o.vocab, cutoffs=cutoffs, division=o.division,
        threads=o.threads, median_ms=1e3 * seconds, tokens_per_s=o.tokens / seconds, added_peak_bytes=added, loss=value,
    )))


if __name__ == "__main__":
    main()
