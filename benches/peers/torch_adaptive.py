#!/usr/bin/env python3
"""Peer: one training step (forward and backward of the mean loss) of torch.nn.AdaptiveLogSoftmaxWithLoss.

Target words are drawn by Zipf's law, the word of rank r with a probability proportional to 1/r, as `head_throughput --targets zipf`
does. Prints one JSON object: the median time of a step, tokens/s, the growth of the process's peak memory over two steps (gradients
included, parameters not), and the loss. N tokens, d width of the hidden state, V vocabulary.
Example: python torch_adaptive.py --tokens 2048 --d 512 --vocab 100000 --cutoffs 4000,20000
"""
import argparse, json, os, statistics

import torch

from measure import added_peak, times


def main():
    a = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    a.add_argument("--tokens", type=int, default=2048)
    a.add_argument("--d", type=int, default=512)
    a.add_argument("--vocab", type=int, default=100_000)
    a.add_argument("--cutoffs", default=None, help="first words of the clusters; by default a 25th and a fifth of the vocabulary")
    a.add_argument("--division", type=float, default=4.0)
    a.add_argument("--repeats", type=int, default=3)
    a.add_argument("--threads", type=int, default=os.cpu_count())
    o = a.parse_args()
    cutoffs = [int(word) for word in o.cutoffs.split(",")] if o.cutoffs else [o.vocab // 25, o.vocab // 5]
    torch.set_num_threads(o.threads)
    torch.manual_seed(0)
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
