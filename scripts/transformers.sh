#!/usr/bin/env bash
# The study of heads under a transformer: docs/results/transformer.md.
#
#   scripts/transformers.sh STAGE TEXT OUT [WIDTH]
#
# TEXT is a folder with train.txt, valid.txt and test.txt. What is made of it goes to a folder of its name in OUT: runs to `runs`, one line
# of results each to STAGE.jsonl. What is done is not done again, and a run that was stopped goes on. Stages:
#   search    every head with each of some learning rates, 1,000 steps
#   heads     every head with the rate that did best for it there, 3,000 steps, three other seeds
#   causes    mixtures that differ in one thing, with the rate of mos, 3,000 steps, one seed
#   continue  the softmax of `heads` for as many steps again, as itself and as other heads, half of the rate
#   time      the softmax of `heads` and of `continue` for as many steps as take the other heads' time, and two others as long
# All models of a width have as many parameters as the largest, by the width of their feed-forward parts.
#
# HIGHRANK=target/release/highrank is the program, JOBS=2 how many runs go on side by side, each with THREADS=1, STEPS=3000, HEADS a
# choice of the heads, and RATES the learning rates of the search.
set -euo pipefail
fail() {
    echo "error: $*" >&2
    exit 2
}
[ $# -ge 3 ] || fail "expected STAGE TEXT OUT [WIDTH], as in: scripts/transformers.sh search ptb runs/transformers 64"
stage=$1 text=$2 width=${4:-64}
text_name=$(basename "$text")
out=$3/$text_name
highrank=${HIGHRANK:-${CARGO_TARGET_DIR:-target}/release/highrank}
steps=${STEPS:-3000}
case $stage in
    search | heads | causes | continue | time) ;;
    *) fail "unknown stage \`$stage\`: search, heads, causes, continue or time" ;;
esac
command -v "$highrank" >/dev/null || fail "\`$highrank\` does not exist: cargo build --release"
[ -f "$text/train.txt" ] || fail "\`$text/train.txt\` does not exist"

# Options of a head by its name here.
head_of() {
    case $1 in
        *-untied) echo "$(head_of "${1%-untied}") --untied" ;;
        softmax | plif) echo "--head $1" ;;
        moc | mos | mos-plif) echo "--head $1 --facets none" ;;
        multi-facet) echo "--head mos" ;;
        mos-tanh) echo "--head mos --activation tanh" ;;
        mos-residual) echo "--head mos --facets none --activation residual" ;;
        mos-random) echo "--head mos --facets none --start random" ;;
        mos-spread-*) echo "--head mos --facets none --start ${1#mos-spread-}" ;;
        mos-decay-*) echo "--head mos --facets none --weight-decay ${1#mos-decay-}" ;;
        facets-*) echo "--head mos --components ${1#facets-}" ;;
        mos-*) echo "--head mos --facets none --components ${1#mos-}" ;;
        multi-facet-*) echo "--head mos --facets ${1#multi-facet-}" ;;
        *) fail "unknown head \`$1\`" ;;
    esac
}

# One run and its line: NAME LR SEED STEPS [from], the last word if it begins with the trained softmax.
cell() {
    local name=$1 lr=$2 seed=$3 steps=$4 from=${5:+$trained}
    local key="$stage-$width-$name-$lr-$seed"
    [ "$stage" = search ] || key+="-$steps"
    local run="$out/runs/$key" line="$out/runs/$key.json" options of=$parameters
    # A matrix of its own.
    [ "${name%-untied}" = "$name" ] || of=$((parameters + words * width))
    [ ! -s "$line" ] || return 0
    options=$(head_of "$name")
    if [ -f "$run/config.json" ]; then
        set -- --resume "$run"
    elif [ -n "$from" ]; then
        # shellcheck disable=SC2086 # several words
        set -- --from "$from" $options --precision bf16 --steps "$steps" --rounds 10 --lr "$lr" --seed "$seed" --out "$run"
    else
        # shellcheck disable=SC2086
        set -- "$text" --model gpt $options --precision bf16 --d-model "$width" --layers 2 --parameters "$of" \
            --steps "$steps" --rounds 10 --lr "$lr" --seed "$seed" --out "$run"
    fi
    RAYON_NUM_THREADS=${THREADS:-1} "$highrank" train "$@" --json 2>>"$out/runs/$key.log" | tail -n 1 >"$line.part" || return 1
    local curve
    curve=$(sed -n 's/^{"epoch".*"valid_ppl":\([0-9.]*\).*/\1/p' "$run/metrics.jsonl" | paste -sd, -)
    sed "s/^{/{\"stage\":\"$stage\",\"text\":\"$text_name\",\"variant\":\"$name\",\"lr\":$lr,\"seed\":$seed,\"curve\":[$curve],/" "$line.part" >"$line"
    rm "$line.part"
}

# Runs cells, a line of arguments each, several side by side; then gathers the stage's lines.
cells() {
    export -f cell head_of fail
    export stage text text_name out width highrank parameters words trained
    mkdir -p "$out/runs"
    printf '%s\n' "$@" | xargs -P "${JOBS:-2}" -I{} bash -c 'set -eo pipefail; cell {}' || fail "a run failed, see $out/runs/*.log"
    cat "$out/runs/$stage"-*.json >"$out/$stage.jsonl"
}

# The learning rate of the search with the lowest validation perplexity of a head.
best_rate() {
    local found
    [ -f "$out/search.jsonl" ] || fail "\`$out/search.jsonl\` does not exist: the stage search comes first"
    found=$(sed -n "s/.*\"variant\":\"$1\",\"lr\":\([0-9.]*\),.*\"d_model\":$width,.*\"valid_ppl\":\([0-9.]*\).*/\2 \1/p" "$out/search.jsonl" | sort -n | head -n 1)
    [ -n "$found" ] || fail "no search of $1 at width $width in $out/search.jsonl"
    echo "${found#* }"
}

# As many as multi-facet has with feed-forward parts four times as wide.
case $width in
    64) parameters=824656 rates="0.002 0.004 0.008 0.016" ;;
    128) parameters=1975184 rates="0.002 0.004 0.008 0.016" ;;
    256) parameters=5283856 rates="0.001 0.002 0.004" ;;
    *) fail "WIDTH is $width, but must be 64, 128 or 256" ;;
esac
rates=${RATES:-$rates}
# Penn Treebank has 10,000 words; so has this count, with a blank in place of the end of a sentence.
words=$(tr -s ' ' '\n' <"$text/train.txt" | sort -u | wc -l)
case $text_name in ptb) ;; *) parameters=$((parameters + (words - 10000) * (width + 1))) ;; esac

# Its rate, half of it, and the run of `heads` with seed 28 and as many steps.
softmax() {
    lr=$(best_rate softmax) || exit 2
    half=$(awk "BEGIN { print $lr / 2 }")
    trained=$out/runs/heads-$width-softmax-$lr-28-$steps
}

heads=${HEADS:-softmax plif moc facets-1 facets-2 mos multi-facet}
for name in $heads; do head_of "$name" >/dev/null; done
# All runs are known before the first starts.
trained='' runs=()
case $stage in
    search)
        for name in $heads; do for lr in $rates; do runs+=("$name $lr 1 1000"); done; done
        ;;
    heads)
        for seed in 28 29 30; do
            for name in $heads; do
                rate=$(best_rate "$name") || exit 2
                runs+=("$name $rate $seed $steps")
            done
        done
        ;;
    causes)
        lr=$(best_rate mos) || exit 2
        for name in mos-tanh multi-facet-1x3 multi-facet-3x1 mos-random mos-residual mos-spread-0 mos-spread-0.1 mos-2 mos-8 \
            mos-plif softmax-untied mos-untied mos-decay-0 mos-decay-0.1; do
            runs+=("$name $lr 28 $steps")
        done
        ;;
    continue)
        softmax
        for name in $heads; do runs+=("$name $half 28 $steps from"); done
        ;;
    time)
        softmax
        # A step of the multi-facet mixture takes 1.25 times the softmax's, one of MoS 1.47 times.
        for longer in $((steps * 5 / 4)) $((steps * 3 / 2)); do
            runs+=("softmax $lr "{28,29,30}" $longer" "softmax $half 28 $longer from")
        done
        for name in facets-1 multi-facet; do
            rate=$(best_rate "$name") || exit 2
            runs+=("$name $rate 28 $((steps * 3 / 2))")
        done
        ;;
esac
cells "${runs[@]}"
echo "$out/$stage.jsonl"
