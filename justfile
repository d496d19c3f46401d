# The one-command check, cheapest first, or some of its steps.
check *steps:
    bash .ci/run {{steps}}

# Reformats everything.
fmt:
    cargo fmt --all -- crates/highrank/src/logit_map/*.rs

# The tests alone.
test *args:
    cargo test --release {{args}}

# The benches: heads, lstm or step.
bench name *args:
    cargo bench --bench {{name}} -- {{args}}
