"""Times of calls, and peak memory of this process, on Linux."""
import time


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


def added_peak(call):
    """What the first of two calls returns, which stays there in the second, and by how many bytes both raise the peak."""
    reset_peak()
    before = resident_peak()
    first = call()
    call()
    return first, resident_peak() - before


def times(call, count):
    """Seconds of each of so many calls."""
    seconds = []
    for _ in range(count):
        started = time.perf_counter()
        call()
        seconds.append(time.perf_counter() - started)
    return seconds
