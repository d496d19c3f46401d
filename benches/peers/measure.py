"""What the peers have in common: options, times of calls, and peak memory of this process, on Linux."""
import argparse, os, time

import torch

# Processors that this process may use.
THREADS = len(os.sched_getaffinity(0))


def parser(doc):
    """A parser that shows a program's documentation as it is."""
    return argparse.ArgumentParser(description=doc, formatter_class=argparse.RawDescriptionHelpFormatter)


def add_numbers(parser, **defaults):
    """Adds options for numbers: `d_hidden=620` is `--d-hidden`."""
    for name, default in defaults.items():
        parser.add_argument("--" + name.replace("_", "-"), type=type(default), default=default)


def arguments(parser):
    """The arguments of the command line, with PyTorch set to what they say of threads, seed and TF32."""
    o = parser.parse_args()
    torch.set_num_threads(o.threads)
    torch.manual_seed(getattr(o, "seed", 0))
    if hasattr(o, "tf32"):
        torch.set_float32_matmul_precision("high" if o.tf32 else "highest")
        torch.backends.cudnn.allow_tf32 = o.tf32
    return o


def resident_peak():
    """Largest resident memory of the process in bytes since `reset_peak`."""
    with open("/proc/self/status") as lines:
        return next(1024 * int(line.split()[1]) for line in lines if line.startswith("VmHWM:"))


def reset_peak():
    """The largest resident memory becomes the present one, where the system lets a process do so."""
    try:
        with open("/proc/self/clear_refs", "w") as file:
            file.write("5")
    except OSError:
        pass


def added_peak(call, device="cpu"):
    """What the first of two calls returns, which stays there in the second, and by how many bytes both raise the peak of the process,
    or of the memory that PyTorch has on a GPU."""
    if device == "cuda":
        torch.cuda.reset_peak_memory_stats()
        before, peak = torch.cuda.memory_allocated(), torch.cuda.max_memory_allocated
    else:
        reset_peak()
        before, peak = resident_peak(), resident_peak
    first = call()
    call()
    return first, peak() - before


def times(call, count):
    """Seconds of each of so many calls."""
    seconds = []
    for _ in range(count):
        started = time.perf_counter()
        call()
        seconds.append(time.perf_counter() - started)
    return seconds
