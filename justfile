# Recipes for developers; `just` lists them.

_default:
    @just --list

# Classify the embedded samples with the embedded model
classify:
    cargo run --release -- classify

# All tests
test:
    cargo test --workspace

# Format the code
fmt:
    cargo fmt --all

# Lints, warnings as errors
clippy:
    cargo clippy --workspace --all-targets -- -D warnings

# The documentation, warnings as errors
doc:
    RUSTDOCFLAGS="-D warnings" cargo doc --workspace --no-deps

# Licences, advisories, sources
deny:
    cargo deny check

# The Python package: its wheel, types and tests, and a local Ray cluster
python:
    ci/python
    ci/ray

# The guide: what its commands print, its links, the book in target/guide/book; `just guide --write` updates it
guide *arguments:
    cargo build -p hipvit-cli -p hip-emu
    ci/guide {{arguments}}

# All of CI's checks
ci:
    .ci/run

# CPU kernels and a whole ViT-B/16
bench:
    cargo bench -p hipvit-diagnostics --bench cpu

# Resampling beside fast_image_resize and Pillow (needs its package)
bench-resize:
    cargo bench --bench resize
    python benches/resize_peers.py

# Whole models beside PyTorch and whatever else is installed (needs their packages)
peers:
    cargo build --release
    python3 -m unittest discover -s benches/peers -t benches
    python benches/peers/random_model.py target/models
    python benches/peers target/models/* --hipvit target/release/hipvit --output target/peers.jsonl
    cargo run --release -- compare target/peers.jsonl --html target/peers.html

# Every type of the safe HIP layer on this machine's GPU
hip-tests:
    cargo test --release -p hip-safe --test gpu -- --nocapture --test-threads 1

# Regenerate the golden models (needs scripts/requirements.txt)
goldens:
    python scripts/goldens.py

# Collect the GPU tests for a machine without Rust: copy target/gpu there and start target/gpu/run
gpu-bundle:
    scripts/gpu-bundle
