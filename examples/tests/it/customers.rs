//! The example of conversations by key.

use std::fs;
use std::path::Path;
use std::process::Command;

fn run(folder: &Path, args: &[&str]) -> String {
    let program = env!("CARGO_BIN_EXE_customers");
    let output = Command::new(program).args(args).current_dir(folder).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

/// Each customer's conversation goes on; one that was erased is told so, and no byte of it is left.
#[test]
fn customers_are_known_until_they_are_erased() {
    let folder = tempfile::tempdir().unwrap();
    fs::create_dir(folder.path().join("target")).unwrap();
    let first = run(folder.path(), &[]);
    assert!(
        first.starts_with("customer/4711, new: Where is my parcel?\ncustomer/4712, new: Hello\n"),
        "{first}"
    );
    assert_eq!(first.lines().count(), 2 + 4);
    let second = run(folder.path(), &[]);
    assert!(
        second.contains("customer/4711, known: ") && second.contains("customer/4712, known: "),
        "{second}"
    );
    assert_eq!(second.lines().count(), 2 + 8);
    let erased = run(folder.path(), &["customer/4711"]);
    assert!(erased.starts_with("customer/4711: removed "), "{erased}");
    let third = run(folder.path(), &[]);
    assert!(third.contains("\"customer/4711\" of workspace default was deleted"), "{third}");
    assert!(third.contains("customer/4712, known: ") && !third.contains("parcel"), "{third}");
    let file = fs::read(folder.path().join("target/customers.db")).unwrap();
    assert!(!file.windows(6).any(|part| part == b"parcel"));
}
