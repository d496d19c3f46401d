#!/usr/bin/env bash
# The runs of the study in RESULTS.md, part by part:
#
#   scripts/study.sh DATA OUT PART...          # e.g. scripts/study.sh ptb runs/study shapes sizes
#
# DATA is a folder with Penn Treebank (train.txt, valid.txt, test.txt), OUT where runs and results go. What is finished is kept and
# what was stopped goes on; several processes of the same command share the work, each with THREADS threads (1). Parts, with hours of
# one core (AMD EPYC, Zen 5):
#
#   shapes      which LSTMs, and for a mixture how many components, at two sizes; validation text alone                  0.8
#   sizes       the heads at five sizes, two fresh seeds, with averaging at the end                                        5
#   later       the heads that came after, at 1.2 million parameters and two layers, likewise                            0.8
#   lag         where a mixture's gain comes from: one and five components, latent learning rate, dropouts               1.7
#   components  K from 1 to 20 at one width                                                                              1.5
#   start       mixtures with linear contexts that start at the softmax, at two sizes, as the part sizes                    1
#   found       rank, spectrum, divergence, lost gradient and learned functions of models of the parts sizes and later   0.3
#   search      twenty draws a head at SIZE parameters, those of results/study-search*.jsonl; validation text alone         4
#   tuned       the best of them with three fresh seeds, trained longer and averaged longer                               10
#   again       the softmax of these averaged again at a lower rate, and the mixture of one seed with more dropout         1
#   falling     both heads of these, or what again left of them, averaged at three lower rates one after another           6
#   dropouts    five dropouts a head at 2 million parameters, fifteen epochs and ten averaged; validation text alone       9
#   regularised the best of them with two fresh seeds, averaged at falling rates until that no longer helps                9
#   dynamic     these models while they learn from what they were scored on; their words, and what found has of others     1
#   letters     softmax and mixtures of equal size on characters, where DATA is a folder of scripts/letters.sh             5
#
# Environment variables: PROGRAM (target/release/examples/ptb_mos), THREADS (1), PRECISION (bf16), EXTRA (options for every sweep, such
# as `--device cuda`), SIZE (2000000; or 500000, a smaller search and a shorter training, for a quarter of the hours).
set -euo pipefail
parts=(shapes sizes later lag components start found search tuned again falling dropouts regularised dynamic letters)
usage() {
    echo "error: expected DATA OUT PART..., parts of ${parts[*]}, as in: scripts/study.sh ptb runs/study shapes" >&2
    exit 2
}
[ $# -ge 3 ] || usage
data=$1 out=$2
shift 2
for part in "$@"; do [[ " ${parts[*]} " == *" $part "* ]] || usage; done
size=${SIZE:-2000000}
[[ $size =~ ^(2000000|500000)$ ]] || { echo "error: SIZE is \`$size\`, but it is 2000000 or 500000" >&2; exit 2; }
[ -f "$data/train.txt" ] || { echo "error: \`$data/train.txt\` does not exist: DATA needs train.txt, valid.txt and test.txt" >&2; exit 2; }
program=${PROGRAM:-${CARGO_TARGET_DIR:-$(dirname "$0")/../target}/release/examples/ptb_mos}
[ -x "$program" ] || { echo "error: \`$program\` is not there: cargo build --release --example ptb_mos" >&2; exit 2; }
command -v flock > /dev/null || { echo "error: \`flock\` is not there: it is a part of util-linux" >&2; exit 2; }
export RAYON_NUM_THREADS=${THREADS:-1}
read -ra extra <<< "${EXTRA:-}"
heads=(softmax mos sigsoftmax moc plif mos-plif)

# once NAME COMMAND...: a command whose output goes to the folder NAME, unless it is done or another process has it.
once() {
    local folder=$out/$1
    shift
    mkdir -p "$folder"
    [ ! -f "$folder/done" ] || return 0
    (
        flock -n 9 || exit 0
        echo "$(date +%T) $folder" >&2
        "$@" > "$folder/log.jsonl" 2> "$folder/log.txt" || {
            local status=$?
            echo "error: $folder: $(tail -1 "$folder/log.txt" | sed 's/^error: //')" >&2
            exit "$status"
        }
        touch "$folder/done"
    ) 9> "$folder/lock"
}
# cell NAME OPTIONS...: a sweep in a folder of its own.
cell() {
    once "$1" "$program" sweep --data "$data" --out "$out/$1" --json --precision "${PRECISION:-bf16}" --knots 1000 --eval-batch 20 --test-batch 20 \
        "${extra[@]}" "${@:2}"
}
is_mixture() { [[ $1 == mos || $1 == moc || $1 == mos-plif || $1 == doc || $1 == mixtape ]]; }

# Six shapes a head: LSTMs of one layer to three, of which a softmax's last is as wide as its embedding, and for a mixture how many
# components.
shapes() {
    local head size shape
    for size in 1200000 500000; do
        for head in softmax mos; do
            case $size,$head in
                500000,mos) shape=(--lstm "128:128,64:256,128" --components "5,10") ;;
                1200000,mos) shape=(--lstm "128:128,128:256,128" --components "5,10") ;;
                500000,*) shape=(--lstm "64:32,64:64,64:128,64:256,64:64,64,64") ;;
                *) shape=(--lstm "64:32,64:64,64:128,64:256,64:128,128,64") ;;
            esac
            cell "shapes/$head-$size" --heads "$head" --parameters "$size" "${shape[@]}" --seeds 1 --epochs 2 --no-test
        done
    done
}

# What the shapes' validation chose, one LSTM. A map of the logits leaves the shape alone, so sigsoftmax and PLIF take the softmax's,
# and the other mixtures take that of MoS.
chosen() {
    if is_mixture "$1"; then echo --lstm 128 --components 10; else echo --lstm 64; fi
}

# Settings are chosen; these seeds have not been seen by any choice. Three epochs, then one with averaged weights.
budget=(--seeds "11,12" --epochs 3 --finetune 1)
sizes() {
    local head size shape
    for size in 1200000 500000 300000 800000 2000000; do
        for head in "${heads[@]}"; do
            read -ra shape < <(chosen "$head")
            cell "sizes/$head-$size" --heads "$head" --parameters "$size" "${shape[@]}" "${budget[@]}"
        done
    done
}

# Two layers, for contexts of both are what the direct output connection is about.
later() {
    local two=(--parameters 1200000 "${budget[@]}")
    cell later/softmax --heads softmax --lstm "128,64" "${two[@]}"
    cell later/sigsoftmax --heads sigsoftmax --lstm "128,64" "${two[@]}"
    # These two treat frequent words otherwise than rare ones, so words are numbered by frequency.
    cell later/adaptive --heads adaptive --lstm "128,64" --vocab-size 10000 "${two[@]}"
    cell later/mixtape --heads mixtape --lstm "128,128" --vocab-size 10000 "${two[@]}"
    cell later/mos --heads mos --components 10 --lstm "128,128" "${two[@]}"
    cell later/doc --heads doc --components 7 --lower-components 3 --lstm "128,128" "${two[@]}"
}

# Where the gain comes from: a single component behind the same latent layer, and fewer components than were chosen.
lag() {
    local mixture=(--heads mos --parameters 1200000 --lstm 128) smaller=(--heads mos --parameters 500000 --lstm 128)
    cell lag/one "${mixture[@]}" --components 1 "${budget[@]}"
    cell lag/one-500000 "${smaller[@]}" --components 1 "${budget[@]}"
    # At the rate of all others every step of a single component is clipped.
    cell lag/one-lr "${mixture[@]}" --components 1 --lr 5 "${budget[@]}"
    cell lag/five "${mixture[@]}" --components 5 "${budget[@]}"
    # One setting at a time. The runs with all as elsewhere are the middle of each: `sweep --from OUT/lag/five-500000 OUT/lag/latent-lr`.
    smaller+=(--components 5 "${budget[@]}" --no-test)
    cell lag/five-500000 "${smaller[@]}"
    cell lag/latent-lr "${smaller[@]}" --latent-lr 0.3,3
    cell lag/dropout-output "${smaller[@]}" --dropout-output 0,0.4
    cell lag/dropout-latent "${smaller[@]}" --dropout-latent 0,0.3
    cell lag/softmax-dropout-output --heads softmax --parameters 500000 --lstm 64 --dropout-output 0,0.2,0.4 "${budget[@]}" --no-test
}

components() {
    local k
    for k in 1 3 5 10 15 20; do
        cell "components/k$k" --heads mos --d-embedding 32 --lstm 128 --equal sizes --components "$k" "${budget[@]}" --rank 2000
    done
}

# Beside the contexts of the part sizes, which have tanh and start at random.
start() {
    local head size shape
    for size in 1200000 2000000; do
        for head in mos moc; do
            read -ra shape < <(chosen "$head")
            cell "start/$head-$size" --heads "$head" --parameters "$size" "${shape[@]}" "${budget[@]}" --set model.start_spread=0.02
        done
    done
}

# look NAME COMMAND OPTIONS...: what a command finds, as JSON lines in OUT/found/NAME.jsonl, unless it is there.
look() {
    local file=$out/found/$1.jsonl
    shift
    [ ! -f "$file" ] || return 0
    mkdir -p "$out/found"
    echo "$(date +%T) $file" >&2
    "$program" "$@" --json > "$file.part"
    mv "$file.part" "$file"
}
# as_head FOLDER HEAD RUN: a run in a folder under the name of its head, for tables and pictures.
as_head() {
    mkdir -p "$1"
    ln -sfn "$(realpath "$3")" "$1/$2"
}
# predictions SUFFIX MODEL...: divergence and rank of what models predict.
predictions() {
    look "kl$1" kl --run "${@:2}" --tokens 4000 --data "$data"
    look "spectrum$1" rank --run "${@:2}" --tokens 4000 --data "$data"
}
# lost SUFFIX MODEL...: the gradient that their decoders lose.
lost() { look "gradient-loss$1" gradient-loss --run "${@:2}" --tokens 10000 --data "$data"; }
# What the models of 1.2 million parameters and seed 11 are like: files of JSON lines in OUT/found.
found() {
    local head run models=() ordered=() missing=() plifs split
    for head in softmax moc sigsoftmax plif mos mos-plif doc mixtape adaptive; do
        run=$out/sizes/$head-1200000/$head-s11-finetuned
        [ -d "$run" ] || run=$out/later/$head/$head-s11-finetuned
        [ -d "$run" ] || { missing+=("$head"); continue; }
        as_head "$out/models" "$head" "$run"
        case $head in
            mixtape | adaptive) ordered+=("$out/models/$head") ;;
            *) models+=("$out/models/$head") ;;
        esac
    done
    [ ${#models[@]} -gt 0 ] || { echo "error: no model in \`$out\`: the parts sizes and later come first" >&2; exit 2; }
    [ ${#missing[@]} = 0 ] || echo "left out, for they are not there: ${missing[*]}" >&2
    lost "" "${models[@]}"
    plifs=("$out"/models/*plif)
    [ ! -e "${plifs[0]}" ] || look plif plif --run "${plifs[@]}" --tokens 10000 --data "$data"
    for head in softmax mos; do
        for split in train valid; do
            look "slice-$head-$split" eval --run "$out/models/$head" --split "$split" --max-tokens 82430 --data "$data"
        done
        look "last-$head" eval --run "$out/models/$head" --split valid --weights last --data "$data"
    done
    predictions "" "${models[@]}"
    # Their words have other numbers.
    [ ${#ordered[@]} = 0 ] || predictions -ordered "${ordered[@]}"
}

# settings FILE HEAD N: the settings of the N-th result of a head in results/FILE, as options.
settings() {
    grep -- "\"head\":\"$2\"" "$results/$1" | sed -n "$3p" | sed -E 's/.*"settings":\{([^}]*)\}.*/\1/; s/"([a-z-]+)":"([^"]*)"(,|$)/--\1=\2 /g; s/"([a-z-]+)":([^,"]+)(,|$)/--\1=\2 /g'
}
results=$(dirname "$0")/../results
[ "$size" = 2000000 ] && found_in=-2000000 || found_in=
# The twenty draws for either head that are in results/study-search*.jsonl, one cell each, so that several processes share them.
search() {
    local head trial drawn epochs=2
    [ "$size" = 2000000 ] || epochs=1
    for trial in $(seq 20); do
        for head in mos softmax; do
            read -ra drawn < <(settings "study-search$found_in.jsonl" "$head" "$trial")
            cell "search-$size/$head-$trial" --heads "$head" --parameters "$size" "${drawn[@]}" --seeds 1 --epochs "$epochs" --finetune 1 --no-test
        done
    done
}
# The draws whose validation perplexity after averaging was the lowest.
tuned() {
    local head seed best epochs=15 averaged
    [ "$size" = 2000000 ] || epochs=10
    for seed in 11 12 13; do
        for head in mos softmax; do
            averaged=$epochs
            # The mixture has arrived by then; the softmax goes on for as long as averaging helps, within these epochs.
            [ "$size,$head" != 2000000,softmax ] || averaged=60
            read -ra best < <(settings "study-tuned$found_in.jsonl" "$head" 1)
            cell "tuned-$size/$head-$seed" --heads "$head" --parameters "$size" "${best[@]}" --seeds "$seed" --epochs "$epochs" --finetune "$averaged"
        done
    done
}

# averaged_anew NEW RUN OPTIONS...: a run averaged anew from its averaged weights, or that taken up again where it was stopped.
averaged_anew() {
    local new=$1 run=$2
    if [ -f "$new/checkpoint/state.json" ]; then
        "$program" train --resume "$new" "${extra[@]}" --json
    else
        rm -rf "$new"
        "$program" train --from "$run" --out "$new" "${@:3}" "${extra[@]}" --json
    fi
}
# further NAME RUN OPTIONS...: a run averaged anew in a folder of its own.
further() { once "$1" averaged_anew "$out/$1/run" "${@:2}"; }
# The averaged model of the part tuned, of this head and seed.
tuned_model() {
    local run=$out/tuned-$size/$1-$2/$1-s$2-finetuned
    [ -d "$run" ] || { echo "error: \`$run\` is not there: the part tuned comes first" >&2; exit 2; }
    echo "$run"
}
# What a search of few epochs chooses, a high rate and next to no dropout, need not suit many: the softmax averaged again at the preset's
# lower rate, and the mixture, whose rate is that, with more dropout.
again() {
    local mixture seed run
    mixture=$(tuned_model mos 13)
    for seed in 11 12 13; do
        run=$(tuned_model softmax "$seed")
        further "again-$size/softmax-$seed" "$run" --epochs 26
    done
    further "again-$size/mos-13-dropout" "$mixture" --epochs 4 --dropout-output 0.2 --dropout-input 0.3 --dropout-latent 0.2
}

# fall NAME RUN EPOCHS: where averaging at one rate no longer helps, a lower rate may. Each stage begins with the averaged weights of the
# one before and ends when six epochs did not help, for it takes some until a new average is as good as a long one, at the latest after
# EPOCHS. Stages are NAME-rate-10 and so on.
fall() {
    local name=$1 run=$2 epochs=$3 rate
    for rate in 10 5 2.5; do
        further "$name-rate-$rate" "$run" --lr "$rate" --epochs "$epochs" --patience 6
        # Another process has this seed.
        [ -f "$out/$name-rate-$rate/done" ] || break
        run=$out/$name-rate-$rate/run
    done
}
# Forty epochs at two million parameters, where the last bring 0.02 %, and ten at half a million.
falling() {
    local head seed run again epochs=40
    [ "$size" = 2000000 ] || epochs=10
    for seed in 11 12 13; do
        for head in mos softmax; do
            run=$(tuned_model "$head" "$seed")
            again=$out/again-$size/$head-$seed
            [ ! -f "$again/done" ] || run=$again/run
            fall "falling-$size/$head-$seed" "$run" "$epochs"
        done
    done
}

# Dropouts that suit a long training: those published for either head at ten times the size, shares of them, and the search's with more
# in front of the decoder and on the contexts. All else is as the search at two million has it.
declare -A published=(
    [mos]="output=0.4 hidden=0.225 input=0.4 latent=0.29 embedding=0.1 weight=0.5"
    [softmax]="output=0.4 hidden=0.25 input=0.4 embedding=0.1 weight=0.5"
)
shares=(1 0.75 0.5 0.25 found)
# The options of HEAD with SHARE of the published dropouts, or with those found.
with_dropouts() {
    local dropout found
    found=$(settings study-tuned-2000000.jsonl "$1" 1)
    if [ "$2" = found ]; then
        sed -E 's/--dropout-(output|latent)=[^ ]* *//g; s/$/ --dropout-output=0.3/' <<< "$found"
        [ "$1" = softmax ] || echo --dropout-latent=0.3
        return
    fi
    sed -E 's/--dropout-[a-z]*=[^ ]* *//g' <<< "$found"
    for dropout in ${published[$1]}; do
        awk -v name="${dropout%=*}" -v value="${dropout#*=}" -v share="$2" 'BEGIN { printf "--dropout-%s=%.4g ", name, value * share }'
    done
}
# with_share NAME HEAD SHARE OPTIONS...
# shellcheck disable=SC2046 # options are words
with_share() { cell "$1" --heads "$2" --parameters 2000000 $(with_dropouts "$2" "$3") --epochs 15 "${@:4}"; }
dropouts() {
    local head share
    for share in "${shares[@]}"; do
        for head in mos softmax; do with_share "dropouts/$head-$share" "$head" "$share" --seeds 1 --finetune 10 --no-test; done
    done
}
# Which of them has the lowest validation perplexity after averaging.
best_share() {
    local share
    for share in "${shares[@]}"; do
        sed -E "s/.*\"finetuned\":\{[^}]*\"valid_ppl\":([0-9.]+).*/\1 $share/" "$out/dropouts/$1-$share/log.jsonl"
    done | sort -g | sed -n '1s/.* //p'
}
regularised() {
    local head seed name trials=("$out"/dropouts/*/done)
    [ ${#trials[@]} = 10 ] || { echo "error: \`$out/dropouts\` has not all ten trials: the part dropouts comes first" >&2; exit 2; }
    for seed in 21 22; do
        for head in mos softmax; do
            name=regularised/$head-$seed
            with_share "$name" "$head" "$(best_share "$head")" --seeds "$seed" --finetune 60
            [ ! -f "$out/$name/done" ] || fall "$name" "$out/$name/$head-s$seed-finetuned" 40
        done
    done
}

# The published settings of dynamic evaluation; tokens of which the mixture is surer than the softmax, and the other way round; and what
# the part found has of other models.
dynamic() {
    local head seed run runs=()
    for seed in 11 12 13; do
        for head in mos softmax; do
            runs+=("$(tuned_model "$head" "$seed")")
        done
    done
    look "words-mos-$size" compare --run "${runs[0]}" "${runs[1]}" --data "$data"
    look "words-softmax-$size" compare --run "${runs[1]}" "${runs[0]}" --data "$data"
    local named=$out/models-$size
    as_head "$named" mos "${runs[0]}"
    as_head "$named" softmax "${runs[1]}"
    local models=("$named/softmax" "$named/mos") last=$out/again-$size/softmax-11
    if [ -f "$last/done" ]; then
        as_head "$named" softmax-again "$last/run"
        models+=("$named/softmax-again")
        look "words-again-$size" compare --run "${runs[0]}" "$last/run" --data "$data"
    fi
    lost "-$size" "${models[@]}"
    predictions "-$size" "${models[@]}"
    for run in "${runs[@]}"; do
        look "dynamic-$(basename "$run")-$size" dynamic-eval --run "$run" --statistics "$run/statistics"
    done
    local folder
    for folder in "$out/again-$size"/softmax-* "$out/falling-$size"/*-rate-2.5 "$out"/regularised/*-rate-2.5; do
        [ ! -f "$folder/done" ] ||
            look "dynamic-$(basename "$folder")-$(basename "$(dirname "$folder")")" \
                dynamic-eval --run "$folder/run" --statistics "$folder/run/statistics"
    done
}

# The sizes of text8 in the paper (its table 12) by four: LSTM 1,024 over d 1,024, and 910 over a d that the size leaves.
letters() {
    local head seed shape
    for seed in 11 12; do
        for head in softmax mos moc; do
            shape=(--lstm 256)
            [ "$head" = softmax ] || shape=(--lstm 228 --components 5)
            cell "letters/$head-$seed" --preset text8 --heads "$head" --parameters 533000 "${shape[@]}" --batch 40 --bptt 50 \
                --seeds "$seed" --epochs 2 --finetune 1
        done
    done
}

for part in "$@"; do "$part"; done
