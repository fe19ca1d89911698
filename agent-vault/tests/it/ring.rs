//! Root keys: files, variables and passphrases.

use std::fs;
use std::process::Command;

use agent_core::ErrorKind;
use agent_vault::KeyRing;

const DIGITS: &str = "000102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1e1f";

fn counted() -> KeyRing {
    KeyRing::from_bytes(std::array::from_fn(|n| n as u8))
}

#[cfg(unix)]
fn set_mode(path: &std::path::Path, mode: u32) {
    use std::os::unix::fs::PermissionsExt;
    fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
}

#[test]
fn a_made_file_holds_a_new_key_that_only_its_owner_may_read_and_is_never_overwritten() {
    let folder = tempfile::tempdir().unwrap();
    let (one, other) = (folder.path().join("one.key"), folder.path().join("other.key"));
    let ring = KeyRing::generate_file(&one).unwrap();
    assert_ne!(KeyRing::generate_file(&other).unwrap().current_id(), ring.current_id());
    assert_eq!(KeyRing::from_file(&one).unwrap().current_id(), ring.current_id());
    let text = fs::read_to_string(&one).unwrap();
    let digits = text.strip_suffix('\n').unwrap();
    assert!(digits.len() == 64 && digits.bytes().all(|digit| digit.is_ascii_hexdigit()));
    #[cfg(unix)]
    {
        use std::os::unix::fs::PermissionsExt;
        assert_eq!(fs::metadata(&one).unwrap().permissions().mode() & 0o777, 0o600);
    }
    let error = KeyRing::generate_file(&one).unwrap_err();
    assert!(matches!(error.kind(), ErrorKind::Conflict { .. }), "{error}");
    assert!(error.to_string().contains("one.key"), "{error}");
    assert_eq!(fs::read_to_string(&one).unwrap(), text);
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 2, "no temporary file is left");

    let error = KeyRing::generate_file(folder.path().join("none/root.key")).unwrap_err();
    assert_eq!(*error.kind(), ErrorKind::NotFound, "{error}");
}

#[test]
fn a_file_is_read_with_any_line_break_and_in_either_case() {
    let folder = tempfile::tempdir().unwrap();
    for (n, text) in [
        format!("{DIGITS}\n"),
        DIGITS.to_owned(),
        format!("{DIGITS}\r\n"),
        format!("{}\n", DIGITS.to_uppercase()),
    ]
    .into_iter()
    .enumerate()
    {
        let path = folder.path().join(format!("{n}.key"));
        fs::write(&path, text).unwrap();
        #[cfg(unix)]
        set_mode(&path, 0o400);
        assert_eq!(KeyRing::from_file(&path).unwrap().current_id(), counted().current_id());
    }
}

#[test]
fn what_is_no_root_key_is_refused_by_an_error_that_names_the_file_and_shows_nothing_of_it() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("root.key");
    for text in [
        String::new(),
        "\n".to_owned(),
        DIGITS[1..].to_owned(),
        format!("{DIGITS}\n\n"),
        format!("{DIGITS}0\n"),
        format!(" {DIGITS}\n"),
        format!("{}g\n", &DIGITS[1..]),
        format!("+{}\n", &DIGITS[1..]),
        format!("{DIGITS}\n{DIGITS}\n"),
        "secret".repeat(10_000),
    ] {
        fs::write(&path, &text).unwrap();
        #[cfg(unix)]
        set_mode(&path, 0o600);
        let error = KeyRing::from_file(&path).unwrap_err();
        assert_eq!(*error.kind(), ErrorKind::InvalidInput, "{text}: {error}");
        let shown = format!("{error} {error:?}");
        assert!(
            shown.contains("root.key") && !shown.contains("0405") && !shown.contains("secret"),
            "{shown}"
        );
    }
    let error = KeyRing::from_file(folder.path().join("none.key")).unwrap_err();
    assert_eq!(*error.kind(), ErrorKind::NotFound, "{error}");
    let error = KeyRing::from_file(folder.path()).unwrap_err();
    assert_eq!(*error.kind(), ErrorKind::InvalidInput, "{error}");
}

#[cfg(unix)]
#[test]
fn a_file_that_others_may_use_is_denied_and_a_link_is_followed() {
    let folder = tempfile::tempdir().unwrap();
    let (path, link) = (folder.path().join("root.key"), folder.path().join("link.key"));
    let ring = KeyRing::generate_file(&path).unwrap();
    std::os::unix::fs::symlink(&path, &link).unwrap();
    assert_eq!(KeyRing::from_file(&link).unwrap().current_id(), ring.current_id());
    for mode in [0o640, 0o604, 0o620, 0o602, 0o610, 0o644] {
        set_mode(&path, mode);
        for path in [&path, &link] {
            let error = KeyRing::from_file(path).unwrap_err();
            assert_eq!(*error.kind(), ErrorKind::Denied, "{mode:o}: {error}");
            let text = error.to_string();
            assert!(text.contains("chmod 600") && text.contains(path.to_str().unwrap()), "{text}");
        }
    }
    // Nothing writes to a pipe, so that a read of it would never end.
    let pipe = folder.path().join("pipe.key");
    assert!(Command::new("mkfifo").arg("-m600").arg(&pipe).status().unwrap().success());
    let error = KeyRing::from_file(&pipe).unwrap_err();
    assert_eq!(*error.kind(), ErrorKind::InvalidInput, "{error}");
}

/// A variable is set for a process that begins; this is that process, too.
#[test]
fn a_variable_is_read() {
    const ROLE: &str = "AGENT_VAULT_TEST_ROLE";
    const KEY: &str = "AGENT_VAULT_TEST_KEY";
    if let Some(role) = std::env::var_os(ROLE) {
        let found = KeyRing::from_env(KEY);
        match role.to_str() {
            Some("good") => assert_eq!(found.unwrap().current_id(), counted().current_id()),
            _ => {
                let error = found.unwrap_err();
                assert_eq!(*error.kind(), ErrorKind::InvalidInput, "{error}");
                let text = error.to_string();
                assert!(text.contains(KEY) && !text.contains("0405"), "{text}");
            }
        }
        return;
    }
    for (role, value) in
        [("good", DIGITS.to_owned()), ("bad", DIGITS[2..].to_owned()), ("bad", String::new())]
    {
        let mut process = Command::new(std::env::current_exe().unwrap());
        process.args(["--exact", "ring::a_variable_is_read"]).env(ROLE, role).env(KEY, value);
        let output = process.output().unwrap();
        let shown = String::from_utf8_lossy(&output.stdout);
        assert!(output.status.success() && shown.contains("1 passed"), "{role}: {shown}");
    }
    let error = KeyRing::from_env(KEY).unwrap_err();
    assert_eq!(*error.kind(), ErrorKind::NotFound, "{error}");
    assert!(error.to_string().contains(KEY), "{error}");
}

#[test]
fn a_ring_has_its_current_key_first_and_each_key_once() {
    let ring = |n| KeyRing::from_bytes([n; 32]);
    let both = ring(2).with_older(ring(1));
    assert_eq!(both.current_id(), ring(2).current_id());
    assert_eq!(both.ids(), [ring(2).current_id(), ring(1).current_id()]);
    let three = ring(3).with_older(both).with_older(ring(1)).with_older(ring(3));
    assert_eq!(three.ids(), [3, 2, 1].map(|n| ring(n).current_id()));
    assert_eq!(format!("{:?}", ring(1).current_id()), format!("KeyId({})", ring(1).current_id()));
}

#[cfg(feature = "passphrase")]
#[test]
fn a_passphrase_gives_the_key_that_it_always_gave() {
    let ring = KeyRing::from_passphrase(&"correct horse".into(), b"0123456789abcdef").unwrap();
    assert_eq!(ring.current_id().as_str(), "27a0e2ec7f6a0769");
    let salted = KeyRing::from_passphrase(&"correct horse".into(), b"0123456789abcdeg").unwrap();
    let other = KeyRing::from_passphrase(&"correct horsf".into(), b"0123456789abcdef").unwrap();
    assert!(ring.current_id() != salted.current_id() && ring.current_id() != other.current_id());
    for (passphrase, salt) in [("", &[1; 16][..]), ("correct horse", &[1; 15]), ("correct horse", &[1; 65])] {
        let error = KeyRing::from_passphrase(&passphrase.into(), salt).unwrap_err();
        assert_eq!(*error.kind(), ErrorKind::InvalidInput, "{error}");
        assert!(!error.to_string().contains("horse"), "{error}");
    }
}
