//! Nothing: this package is its `Cargo.toml`.
