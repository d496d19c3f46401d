#!/usr/bin/env bash
# The runs of the study in RESULTS.md, part by part:
#
#   scripts/study.sh DATA OUT PART...          # e.g. scripts/study.sh ptb runs/study shapes sizes
#
# DATA is a folder with Penn Treebank (train.txt, valid.txt, test.txt), OUT where runs and results go. What is finished is kept and
# what was stopped goes on; several processes of the same command share the work, each with THREADS threads (1). The settings of PART
# are the files studies/settings/PART*.toml, which say what it asks and for how many hours of one core (AMD EPYC, Zen 5). The parts
# shapes, sizes, later, lag, components and start are such files alone, as is letters, where DATA is a folder of scripts/letters.sh.
# What the others add depends on what was found; those without files have their hours here:
#
#   found       rank, spectrum, divergence, lost gradient and learned functions of models of the parts sizes and later   0.3
#   search      twenty draws a head at SIZE parameters
#   tuned       the best of them with three fresh seeds, trained longer and averaged longer
#   again       the softmax of these averaged again at a lower rate, and the mixture of one seed with more dropout         1
#   falling     both heads of these, or what again left of them, averaged at three lower rates one after another           6
#   dropouts    five dropouts a head at 2 million parameters
#   regularised the best of them with two fresh seeds, averaged at falling rates until that no longer helps
#   dynamic     these models while they learn from what they were scored on; their words, and what found has of others     1
#
# Environment variables: PROGRAM (target/release/examples/ptb_mos), THREADS (1), PRECISION (that of the files), EXTRA (options for every
# sweep, such as `--device cuda`), SIZE (2000000; or 500000, a smaller search and a shorter training, for a quarter of the hours).
set -euo pipefail
parts=(shapes sizes later lag components start found search tuned again falling dropouts regularised dynamic letters)
fail() { echo "error: $*" >&2; exit 2; }
usage="expected DATA OUT PART..., parts of ${parts[*]}, as in: scripts/study.sh ptb runs/study shapes"
[ $# -ge 3 ] || fail "$usage"
data=$1 out=$2 size=${SIZE:-2000000}
shift 2
for part in "$@"; do [[ " ${parts[*]} " == *" $part "* ]] || fail "$usage"; done
[[ $size =~ ^(2000000|500000)$ ]] || fail "SIZE is \`$size\`, but it is 2000000 or 500000"
[ -f "$data/train.txt" ] || fail "\`$data/train.txt\` does not exist: DATA needs train.txt, valid.txt and test.txt"
root=$(dirname "$0")/.. settings=$(dirname "$0")/../studies/settings
program=${PROGRAM:-${CARGO_TARGET_DIR:-$root/target}/release/examples/ptb_mos}
[ -x "$program" ] || fail "\`$program\` is not there: cargo build --release --example ptb_mos"
command -v flock > /dev/null || fail "\`flock\` is not there: it is a part of util-linux"
export RAYON_NUM_THREADS=${THREADS:-1}
read -ra extra <<< "${EXTRA:-}"
# What the runs of a finished folder were made of.
made="$(cksum < "$data/train.txt") ${PRECISION:-}"

# finished FOLDER: whether it is done; one of another text is refused.
finished() {
    [ -f "$1/done" ] || return 1
    [ ! -s "$1/done" ] || [ "$(< "$1/done")" = "$made" ] || fail "\`$1\` is of another text or PRECISION: choose another OUT"
}
# once NAME COMMAND...: a command whose output goes to the folder NAME, unless it is done or another process has it.
once() {
    local folder=$out/$1
    mkdir -p "$folder"
    ! finished "$folder" || return 0
    (
        flock -n 9 || exit 0
        echo "$(date +%T) $folder" >&2
        "${@:2}" > "$folder/log.jsonl" 2> "$folder/log.txt" || {
            local status=$?
            echo "error: $folder: $(tail -1 "$folder/log.txt" | sed 's/^error: //')" >&2
            exit "$status"
        }
        echo "$made" > "$folder/done"
    ) 9> "$folder/lock"
}
# cell NAME FILE OPTIONS...: the sweep of studies/settings/FILE.toml in the folder NAME; options replace those of the file.
cell() {
    once "$1" "$program" sweep "$settings/$2.toml" --data "$data" --out "$out/$1" --json ${PRECISION:+--precision "$PRECISION"} \
        "${extra[@]}" "${@:3}"
}
# shared NAME FILE LISTS OPTIONS...: the same in cells that processes share, one for each combination of items that these lists have in
# the file: NAME-ITEM-ITEM, or NAME/ITEM-ITEM if NAME ends in `/`.
shared() {
    local name=$1 file=$2 list others items item
    read -r list others <<< "$3"
    [ -n "$list" ] || { cell "${name%/}" "$file" "${@:4}"; return; }
    items=$(sed -nE "s/^$list = \[(.*)\]$/\1/p" "$settings/$file.toml" | tr -d '",')
    [ -n "$items" ] || fail "\`$settings/$file.toml\` needs a list \`$list\` in one line"
    [[ $name == */ ]] || name+=-
    for item in $items; do shared "$name$item" "$file" "$others" "--$list" "$item" "${@:4}"; done
}
# files PART LISTS: the cells of all files of a part.
files() {
    local file
    for file in "$settings/$1"{,-*}.toml; do
        [ ! -f "$file" ] || shared "$(basename "$file" .toml)/" "$(basename "$file" .toml)" "$2"
    done
}
shapes() { files shapes ""; }
sizes() { files sizes "parameters heads"; }
later() { files later seeds; }
lag() { files lag ""; }
components() { files components components; }
start() { files start "parameters heads"; }
letters() { files letters "seeds heads"; }

# look NAME COMMAND OPTIONS...: what a command finds, as JSON lines in OUT/found/NAME.jsonl, unless it is there by the same command.
look() {
    local file=$out/found/$1.jsonl command="${*:2}"
    there() { [ -f "$file" ] && [ "$(cat "$file.command" 2> /dev/null)" = "$command" ]; }
    ! there || return 0
    mkdir -p "$out/found"
    (
        # Another process may be at it, or may have ended meanwhile.
        flock -n 9 && ! there || exit 0
        echo "$(date +%T) $file" >&2
        "$program" "${@:2}" --json > "$file.part"
        mv "$file.part" "$file"
        echo "$command" > "$file.command"
    ) 9> "$file.lock"
}
# as_head FOLDER HEAD RUN: a run in a folder under the name of its head, for tables and pictures.
as_head() { mkdir -p "$1" && ln -sfn "$(realpath "$3")" "$1/$2"; }
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
        for run in "$out"/{"sizes/1200000-$head",later/11,later-ordered/11}/"$head-s11-finetuned"; do [ ! -d "$run" ] || ! finished "${run%/*}" || break; done
        if [ ! -d "$run" ] || ! finished "${run%/*}"; then
            missing+=("$head")
            continue
        fi
        as_head "$out/models" "$head" "$run"
        if [[ $run == "$out"/later-ordered/* ]]; then ordered+=("$out/models/$head"); else models+=("$out/models/$head"); fi
    done
    [ ${#models[@]} -gt 0 ] || fail "no model in \`$out\`: the parts sizes and later come first"
    [ ${#missing[@]} = 0 ] || echo "left out, for they are not there: ${missing[*]}" >&2
    lost "" "${models[@]}"
    plifs=("$out"/models/*plif)
    [ ! -e "${plifs[0]}" ] || look plif plif --run "${plifs[@]}" --tokens 10000 --data "$data"
    for head in softmax mos; do
        run=$out/models/$head
        for split in train valid; do look "slice-$head-$split" eval --run "$run" --split "$split" --max-tokens 82430 --data "$data"; done
        look "last-$head" eval --run "$run" --split valid --weights last --data "$data"
    done
    predictions "" "${models[@]}"
    # Their words have other numbers.
    [ ${#ordered[@]} = 0 ] || predictions -ordered "${ordered[@]}"
}

# recorded FILE NAME N: the settings of the N-th result of a head or run in results/FILE, as options.
recorded() {
    grep -E "\"(head|run)\":\"$2\"" "$root/results/$1" | sed -n "$3p" |
        sed -E 's/.*"settings":\{([^}]*)\}.*/\1/; s/"([a-z-]+)":("([^"]*)"|[^,"]+)(,|$)/--\1=\2 /g; s/"//g'
}
[ "$size" = 2000000 ] && found_in=-2000000 || found_in=
# The draws in results/study-search*.jsonl.
search() {
    local trial head drawn
    for trial in $(seq 20); do
        for head in mos softmax; do
            read -ra drawn < <(recorded "study-search$found_in.jsonl" "$head" "$trial")
            cell "search-$size/$head-$trial" "search-$size" --heads "$head" "${drawn[@]}"
        done
    done
}
# The draws whose validation perplexity after averaging was the lowest.
tuned() {
    local head best
    for head in mos softmax; do
        read -ra best < <(recorded "study-tuned$found_in.jsonl" "$head" 1)
        # The mixture has arrived by then; the softmax goes on for as long as averaging helps, within these epochs.
        [ "$size,$head" != 2000000,softmax ] || best+=(--finetune 60)
        shared "tuned-$size/$head" "tuned-$size" seeds --heads "$head" "${best[@]}"
    done
}

# averaged_anew NEW RUN OPTIONS...: a run averaged anew from its averaged weights, or that taken up again where it was stopped.
averaged_anew() {
    if [ -f "$1/config.json" ]; then
        set -- --resume "$1"
    else
        rm -rf "$1"
        set -- --from "$2" --out "$1" "${@:3}"
    fi
    "$program" train "$@" "${extra[@]}" --json
}
# further NAME RUN OPTIONS...: a run averaged anew in a folder of its own.
further() { once "$1" averaged_anew "$out/$1/run" "${@:2}"; }
# The averaged model of the part tuned, of this head and seed.
tuned_model() {
    local run=$out/tuned-$size/$1-$2/$1-s$2-finetuned
    [ -d "$run" ] || fail "\`$run\` is not there: the part tuned comes first"
    finished "${run%/*}" || fail "\`${run%/*}\` is not finished: the part tuned comes first"
    echo "$run"
}
# What a search of few epochs chooses, a high rate and next to no dropout, need not suit many: the softmax averaged again at the preset's
# lower rate, and the mixture, whose rate is that, with more dropout.
again() {
    local seed run
    run=$(tuned_model mos 13)
    further "again-$size/mos-13-dropout" "$run" --epochs 4 --dropout-output 0.2 --dropout-input 0.3 --dropout-latent 0.2
    for seed in 11 12 13; do
        run=$(tuned_model softmax "$seed")
        further "again-$size/softmax-$seed" "$run" --epochs 26
    done
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
            # Not from what came before, where another process is at it.
            if [ -d "$again" ]; then
                [ -f "$again/done" ] || continue
                run=$again/run
            fi
            fall "falling-$size/$head-$seed" "$run" "$epochs"
        done
    done
}

# with_dropouts NAME FILE RUN OPTIONS...: a cell with the dropouts of a run in results/study-dropouts.jsonl, and else as the search at
# two million has it.
with_dropouts() {
    local head=${3%%-*} found dropouts
    read -ra found < <(recorded study-tuned-2000000.jsonl "$head" 1 | sed -E 's/--dropout-[^ ]* *//g')
    read -ra dropouts < <(recorded study-dropouts.jsonl "$3" 1)
    cell "$1" "$2" --heads "$head" "${found[@]}" "${dropouts[@]}" "${@:4}"
}
dropouts() {
    local run
    for run in {mos,softmax}-{1,0.75,0.5,0.25,found}; do with_dropouts "dropouts/$run" dropouts "$run"; done
}
# The dropouts of a head with the lowest validation perplexity after averaging.
best_dropouts() {
    local trial
    for trial in "$out/dropouts/$1"-*; do
        sed -E "s/.*\"finetuned\":\{[^}]*\"valid_ppl\":([0-9.]+).*/\1 ${trial##*/}/" "$trial/log.jsonl"
    done | sort -g | sed -n '1s/.* //p'
}
regularised() {
    local head seed name best trials=("$out"/dropouts/*/done)
    [ ${#trials[@]} = 10 ] || fail "\`$out/dropouts\` has not all ten trials: the part dropouts comes first"
    for seed in 21 22; do
        for head in mos softmax; do
            name=regularised/$head-$seed
            best=$(best_dropouts "$head")
            with_dropouts "$name" regularised "$best" --seeds "$seed"
            [ ! -f "$out/$name/done" ] || fall "$name" "$out/$name/$head-s$seed-finetuned" 40
        done
    done
}

# The published settings of dynamic evaluation; tokens of which the mixture is surer than the softmax, and the other way round; and what
# the part found has of other models.
dynamic() {
    local head seed run runs=() named=$out/models-$size models last=$out/again-$size/softmax-11 folder part
    for seed in 11 12 13; do
        for head in mos softmax; do runs+=("$(tuned_model "$head" "$seed")"); done
    done
    look "words-mos-$size" compare --run "${runs[0]}" "${runs[1]}" --data "$data"
    look "words-softmax-$size" compare --run "${runs[1]}" "${runs[0]}" --data "$data"
    as_head "$named" mos "${runs[0]}"
    as_head "$named" softmax "${runs[1]}"
    models=("$named/softmax" "$named/mos")
    if [ -f "$last/done" ]; then
        as_head "$named" softmax-again "$last/run"
        models+=("$named/softmax-again")
        look "words-again-$size" compare --run "${runs[0]}" "$last/run" --data "$data"
    fi
    lost "-$size" "${models[@]}"
    predictions "-$size" "${models[@]}"
    for run in "${runs[@]}"; do look "dynamic-$(basename "$run")-$size" dynamic-eval --run "$run" --statistics "$run/statistics"; done
    for folder in "$out/again-$size"/softmax-* "$out/falling-$size"/*-rate-2.5 "$out"/regularised/*-rate-2.5; do
        [ -f "$folder/done" ] || continue
        part=$(basename "$(dirname "$folder")") run=$folder/run
        look "dynamic-$(basename "$folder")-$part" dynamic-eval --run "$run" --statistics "$run/statistics"
    done
}

for part in "$@"; do "$part"; done
