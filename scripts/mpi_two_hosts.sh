#!/usr/bin/env bash
# Runs a program as two ranks in two network namespaces, as if on two machines:
#
#   scripts/mpi_two_hosts.sh target/release/highrank train ptb --preset small --epochs 1 --out runs/two-hosts    # built with --features mpi
#
# The namespaces are joined by a line of RATE (default 1gbit) with a delay of DELAY milliseconds (1) each way: a veth pair with
# `tc netem`, or, where the kernel has no netem, two tap devices with a relay between them that delays and paces frames, which takes a
# core; with DELAY=0 a veth pair with `tc tbf`, which takes none. Needs root, iproute2, Open MPI and Python. RANKS is the number of ranks in each namespace (1), THREADS those of a rank (1).
# `scripts/mpi_two_hosts.sh --line` only measures the line.
set -euo pipefail
rate=${RATE:-1gbit} delay=${DELAY:-1} ranks=${RANKS:-1} threads=${THREADS:-1}
if [ $# -eq 0 ] || [ "$(id -u)" != 0 ]; then
    echo "error: expected a program with its arguments, as root: scripts/mpi_two_hosts.sh target/release/highrank train ..." >&2
    exit 2
fi
a=mpi-a-$$ b=mpi-b-$$ work=$(mktemp -d) relay=
clean() {
    [ -z "$relay" ] || kill "$relay" 2>/dev/null || true
    ip netns del "$a" 2>/dev/null || true
    ip netns del "$b" 2>/dev/null || true
    rm -rf "$work"
}
trap clean EXIT
ip netns add "$a"
ip netns add "$b"

up() { # namespace device address
    ip -n "$1" link set lo up
    ip -n "$1" addr add "$3/24" dev "$2"
    ip -n "$1" link set "$2" up
}
has_netem() {
    ip -n "$a" link add probe0 type veth peer name probe1
    local found=0
    ip netns exec "$a" tc qdisc add dev probe0 root netem delay 1ms 2>/dev/null || found=1
    ip -n "$a" link del probe0
    return $found
}
pair() { # queue discipline of both ends
    ip -n "$a" link add va type veth peer name vb netns "$b"
    up "$a" va 10.77.0.1
    up "$b" vb 10.77.0.2
    ip netns exec "$a" tc qdisc add dev va root "$@"
    ip netns exec "$b" tc qdisc add dev vb root "$@"
    echo "line: veth pair, $rate, $delay ms each way" >&2
}
if [ "$delay" = 0 ]; then
    pair tbf rate "$rate" burst 256k latency 50ms
elif has_netem; then
    pair netem rate "$rate" delay "${delay}ms" limit 100000
else
    cat >"$work/relay.py" <<'PYTHON'
"""Relays frames between two tap devices, each direction at a rate and with a delay."""
import collections, ctypes, fcntl, os, select, struct, sys, time

rate = {"kbit": 1e3, "mbit": 1e6, "gbit": 1e9}[sys.argv[1][-4:]] * float(sys.argv[1][:-4])
delay = float(sys.argv[2]) / 1000


def enter(namespace):
    if ctypes.CDLL(None, use_errno=True).setns(namespace, 0x40000000) != 0:
        raise OSError(ctypes.get_errno(), "setns")


def tap(namespace, name):
    """A tap device of another network namespace."""
    home = os.open("/proc/self/ns/net", os.O_RDONLY)
    enter(os.open("/var/run/netns/" + namespace, os.O_RDONLY))
    device = os.open("/dev/net/tun", os.O_RDWR | os.O_NONBLOCK)
    fcntl.ioctl(device, 0x400454CA, struct.pack("16sH", name.encode(), 0x0002 | 0x1000))
    enter(home)
    return device


ends = [tap(sys.argv[3], "va"), tap(sys.argv[4], "vb")]
print("ready", flush=True)
line = {end: collections.deque() for end in ends}  # by the end that sent
free = dict.fromkeys(ends, 0.0)
while True:
    due = min((queue[0][0] for queue in line.values() if queue), default=None)
    wait = 1.0 if due is None else max(0.0, due - time.monotonic())
    # Not epoll, whose timer is a millisecond.
    ready, _, _ = select.select(ends, [], [], wait)
    now = time.monotonic()
    for end in ready:
        try:
            for _ in range(64):
                frame = os.read(end, 70000)
                free[end] = max(free[end], now) + len(frame) * 8 / rate
                line[end].append((free[end] + delay, frame))
        except BlockingIOError:
            pass
    for end, other in (ends, ends[::-1]):
        while line[end] and line[end][0][0] <= now:
            try:
                os.write(other, line[end].popleft()[1])
            except (BlockingIOError, OSError):
                pass
PYTHON
    # Large frames: the relay's time is by the frame.
    mkfifo "$work/ready"
    python3 "$work/relay.py" "$rate" "$delay" "$a" "$b" >"$work/ready" &
    relay=$!
    read -r _ <"$work/ready"
    ip -n "$a" link set va mtu 60000
    ip -n "$b" link set vb mtu 60000
    up "$a" va 10.77.0.1
    up "$b" vb 10.77.0.2
    echo "line: relay between tap devices (no netem in this kernel), $rate, $delay ms each way, frames of 60 kB" >&2
fi
if [ "$1" = --line ]; then
    ip netns exec "$b" python3 -c '
import socket
connection, _ = socket.create_server(("10.77.0.2", 7000)).accept()
while data := connection.recv(1 << 20):
    connection.send(b"x" * data.count(b"?"))' &
    sleep 0.5
    ip netns exec "$a" python3 -c '
import socket, time
line = socket.create_connection(("10.77.0.2", 7000))
line.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
def ask(data):
    began = time.monotonic()
    line.sendall(data + b"?")
    line.recv(1)
    return time.monotonic() - began
trips, size = sorted(ask(b"") for _ in range(50)), 1 << 27
print(f"round trip {trips[25] * 1e3:.2f} ms, {size * 8 / (ask(bytes(size)) - trips[25]) / 1e6:.0f} Mbit/s")'
    exit
fi

# Stands for ssh: starts what is to run on the other host in the other namespace, which has a host name and a temporary folder of
# its own.
cat >"$work/agent" <<AGENT
#!/bin/sh
shift
exec ip netns exec $b unshare --uts sh -c 'hostname mpi-b; mkdir -p $work/b; TMPDIR=$work/b exec sh -c "\$*"' agent "\$@"
AGENT
chmod +x "$work/agent"
mkdir "$work/a"
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 RAYON_NUM_THREADS=$threads
ip netns exec "$a" unshare --uts sh -c 'hostname mpi-a; exec "$@"' run env TMPDIR="$work/a" mpirun \
    --mca plm_rsh_agent "$work/agent" --mca btl tcp,self --mca btl_tcp_if_include 10.77.0.0/24 \
    --mca oob_tcp_if_include 10.77.0.0/24 --mca odls_base_sigkill_timeout 60 --bind-to none -x RAYON_NUM_THREADS \
    --host "10.77.0.1:$ranks,10.77.0.2:$ranks" -np $((2 * ranks)) --wdir "$PWD" "$@"
