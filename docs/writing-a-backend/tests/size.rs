//! The page promises a backend of under 420 lines.

/// A third party's backend, whole, is under 420 lines of code; `tests/conformance.rs` runs the public suite on it.
#[test]
fn a_whole_backend_is_under_420_lines() {
    let source = include_str!("../src/lib.rs");
    let code = source.lines().map(str::trim).filter(|line| !line.is_empty() && !line.starts_with("//"));
    let lines = code.count();
    assert!(lines < 420, "{lines} lines of code");
}
