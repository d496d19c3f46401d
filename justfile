# The one-command check, cheapest first. The same list as .ci/run.
check:
    bash .ci/run

# Reformats everything.
fmt:
    cargo fmt --all

# The tests alone.
test *args:
    cargo test --release {{args}}

# The benches: heads, lstm or step.
bench name *args:
    cargo bench --bench {{name}} -- {{args}}
