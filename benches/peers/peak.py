"""Peak memory of this process, on Linux."""


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
