//! The page promises a backend of under 410 lines.

/// A third party's backend, whole, is under 410 lines of code; `tests/conformance.rs` runs the public suite on it.
#[test]
fn a_whole_backend_is_under_410_lines() {
    let source = include_str!("../src/lib.rs");
    let code = source.lines().map(str::trim).filter(|line| !line.is_empty() && !line.starts_with("//"));
    let lines = code.count();
    assert!(lines < 410, "{lines} lines of code");
}
