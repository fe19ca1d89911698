//! Suites that need several crates of the project, or several stores: see `tests/`.
