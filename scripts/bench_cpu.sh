#!/usr/bin/env bash
# Runs our programs and the same formulas in PyTorch in turn and prints one JSON object a run, for `bench_report`:
#
#   scripts/bench_cpu.sh PYTHON ROUNDS > benches/results/NAME.jsonl
#   cargo run --release --example bench_report -- benches/results/NAME.jsonl --plot benches/results/NAME.svg
#
# PYTHON is an interpreter with torch and numpy. Nothing else should run on the machine: about two minutes a round.
set -euo pipefail
if [ $# -ne 2 ]; then
    echo "error: expected PYTHON ROUNDS, as in: scripts/bench_cpu.sh python3 7" >&2
    exit 2
fi
python=$1 rounds=$2
cd "$(dirname "$0")/.."
cargo build --release --locked --examples >&2
bin=target/release/examples
sizes=(--tokens 840 --d-hidden 620 --d-embedding 280 --vocab 10000 --components 15)

# record WHAT WHO ROUND COMMAND...
record() {
    local what=$1 who=$2 round=$3
    shift 3
    echo "round $round: $what, $who" >&2
    printf '{"what":"%s","who":"%s","round":%s,"result":%s}\n' "$what" "$who" "$round" "$("$@")"
}
ours() { record "$1" highrank "$2" "$bin/head_throughput" --head "$1" "${sizes[@]}" --repeats 3 --json; }
peer() { record "$1" "$2" "$3" "$python" benches/peers/torch_heads.py --head "$1" "${sizes[@]}" --repeats 3 --json "${@:4}"; }

for round in $(seq "$rounds"); do
    ours mos "$round"
    peer mos "PyTorch, original formula" "$round"
    ours mos "$round"
    peer mos "PyTorch, log space" "$round" --variant lse
    for head in softmax moc sigsoftmax plif; do
        for _ in 1 2; do
            ours "$head" "$round"
            peer "$head" PyTorch "$round"
        done
    done
    for _ in 1 2; do
        record plif highrank "$round" "$bin/head_throughput" --head plif "${sizes[@]}" --repeats 15 --json
        record plif "our softmax" "$round" "$bin/head_throughput" --head softmax "${sizes[@]}" --repeats 15 --json
    done
    record "three LSTM layers" highrank "$round" "$bin/step_throughput" --part lstm --repeats 5 --json
    record "three LSTM layers" PyTorch "$round" "$python" benches/peers/torch_lstm.py --repeats 5 --json
    record "paper step, mos" highrank "$round" "$bin/step_throughput" --head mos --repeats 3 --json
    record "paper step, mos" PyTorch "$round" "$python" benches/peers/torch_awd_lstm.py --preset paper --head mos --steps 3 --json
    record "paper step, softmax" highrank "$round" "$bin/step_throughput" --head softmax --repeats 5 --json
    record "paper step, softmax" PyTorch "$round" "$python" benches/peers/torch_awd_lstm.py --preset paper --head softmax --steps 5 --json
    record "paper step, mos" highrank "$round" "$bin/step_throughput" --head mos --repeats 3 --json
    record "paper step, mos" "our softmax, as many parameters" "$round" "$bin/step_throughput" --head softmax --equal-size --repeats 5 --json
done
