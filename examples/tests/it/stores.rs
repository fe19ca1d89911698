//! A store by its address.

use std::process::Command;

fn run(url: &str) -> (bool, String, String) {
    let output = Command::new(env!("CARGO_BIN_EXE_stores")).arg(url).output().unwrap();
    let text = |bytes| String::from_utf8(bytes).unwrap();
    (output.status.success(), text(output.stdout), text(output.stderr))
}

/// Of two tenants one is deleted each time, and the other goes on.
#[test]
fn one_tenant_is_deleted_and_the_other_goes_on() {
    let folder = tempfile::tempdir().unwrap();
    let place = folder.path().display();
    for url in [format!("sqlite:{place}/stores.db"), format!("files:{place}/files")] {
        for round in 1..=2 {
            let (done, out, err) = run(&url);
            assert!(done, "{url}: {err}");
            let bob = 2 * round;
            assert_eq!(
                out,
                format!(
                    "alice@example.com: 2 messages so far\nbob@example.com: {bob} messages so far\n\
                     alice@example.com: deleted, sessions: 1\ntenants left: 1\n"
                )
            );
        }
    }
    let (done, _, err) = run("tape:7");
    assert!(!done && err.contains("supported: "), "{err}");
}
