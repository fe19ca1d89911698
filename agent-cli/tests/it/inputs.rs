//! Input files: their size limits, and refusal of files that are neither regular files nor pipes.

use std::fs::{self, File};
use std::process::{Command, Stdio};

use crate::site::{Ran, Site};

/// Runs the program with at most 1 GiB of memory, so that endless reading fails.
fn limited(site: &Site, args: &[&str], stdin: &str) -> Ran {
    let mut command = Command::new("sh");
    command.args(["-c", "ulimit -v 1048576; exec \"$0\" \"$@\""]).arg(env!("CARGO_BIN_EXE_chat")).args(args);
    command.args(["--store", &site.address(), "--device", "laptop"]).env("HOME", site.path());
    command.stdin(Stdio::from(File::open(stdin).unwrap()));
    let output = command.output().unwrap();
    let code = output.status.code().unwrap_or(-1);
    let text = |bytes| String::from_utf8(bytes).unwrap();
    Ran { code, out: text(output.stdout), err: text(output.stderr) }
}

/// Endless and too large files are refused, with the limit in the error, and use no memory.
#[cfg(target_os = "linux")]
#[test]
fn oversized_input_is_refused_in_bounded_memory() {
    let site = Site::new("sqlite");
    let (_, workspace) = site.send("hello");
    let huge = site.path().join("huge");
    File::create(&huge).unwrap().set_len(3 << 30).unwrap();
    let huge = huge.to_str().unwrap();
    let put = |file| ["area", "put", workspace.as_str(), "memory", "a", file];
    let mut bad = Vec::new();
    for file in ["/dev/zero", huge, "-"] {
        for args in [
            put(file).to_vec(),
            vec!["session", "import", file],
            vec!["config", "show", "--config", file],
            vec!["workspace", "list", "--config", file],
            vec!["--config", file],
        ] {
            // A configuration cannot be read from `-`, and a document there may be as large as the limit.
            if file == "-" && args[0] != "area" {
                continue;
            }
            // A conversation reads its lines from standard input.
            let stdin = if file == "-" { "/dev/zero" } else { "/dev/null" };
            let ran = limited(&site, &args, stdin);
            let message = if file == "/dev/zero" { "not a regular file" } else { "the maximum is" };
            let names = if file == "-" { "standard input" } else { file };
            if ran.code != 1 || !ran.err.contains(message) || !ran.err.contains(names) {
                bad.push(format!("{args:?}: {ran:?}"));
            }
        }
    }
    assert!(bad.is_empty(), "{bad:#?}");
    fs::create_dir_all(site.path().join("old/memory")).unwrap();
    File::create(site.path().join("old/memory/huge")).unwrap().set_len(3 << 30).unwrap();
    let old = site.path().join("old");
    let ran = limited(&site, &["area", "import", &workspace, old.to_str().unwrap()], "/dev/null");
    assert!(ran.code == 1 && ran.err.contains("the maximum is"), "{ran:?}");
}

/// An archive whose document is too large is refused like one with another fault, before it is read.
#[test]
fn an_archive_with_a_huge_document_is_refused() {
    let site = Site::new("files");
    let mut header = [0; 512];
    for (at, text) in [
        (0, "session.json"),
        (100, "0000600\0"),
        (108, "0000000\0"),
        (116, "0000000\0"),
        (124, "77777777777\0"),
        (136, "00000000000\0"),
        (148, "        "),
        (156, "0"),
        (257, "ustar\x0000"),
    ] {
        header[at..at + text.len()].copy_from_slice(text.as_bytes());
    }
    let sum: u32 = header.iter().map(|byte| u32::from(*byte)).sum();
    header[148..155].copy_from_slice(format!("{sum:06o}\0").as_bytes());
    fs::write(site.path().join("huge.tar"), header).unwrap();
    let ran = site.run(&["session", "import", "huge.tar"]);
    assert!(ran.err.contains("session.json has 8589934591 bytes") && !ran.err.contains("blobs"), "{ran:?}");
    site.fails(&["session", "import", "huge.tar"], 5, "export the session again, or use another copy");
    // As for any other refused archive.
    fs::write(site.path().join("cut.tar"), &header[..500]).unwrap();
    site.fails(&["session", "import", "cut.tar"], 5, "export the session again, or use another copy");
}

/// A pipe is read like a file.
#[test]
fn pipe_is_read_like_a_file() {
    let site = Site::new("files");
    let (main, workspace) = site.send("hello");
    let (other, program) = (Site::new("files"), env!("CARGO_BIN_EXE_chat"));
    let script = format!(
        "{program} session export {main} --store '{here}' | {program} session import /dev/stdin --store '{there}' && \
         printf kept | {program} area put {workspace} memory a - --store '{here}' && \
         {program} config show --config <(echo 'provider = \"claude\"') --store '{here}'",
        here = site.address(),
        there = other.address(),
    );
    let ran: Ran =
        Command::new("bash").arg("-c").arg(script).env("HOME", site.path()).output().unwrap().into();
    assert_eq!(ran.code, 0, "{ran:?}");
    assert!(ran.out.contains(&main) && ran.out.contains("claude"), "{ran:?}");
    assert_eq!(site.ok(&["area", "get", &workspace, "memory", "a"]), "kept");
}

/// A named configuration that cannot be read is an error of the conversation and of every command, with its path and
/// the reason, before anything is done.
#[test]
fn unreadable_named_config_is_an_error() {
    let site = Site::new("files");
    let folder = site.path().to_str().unwrap().to_owned();
    let (broken, missing) = (format!("{folder}/broken.toml"), format!("{folder}/nowhere.toml"));
    fs::write(&broken, "provider = ").unwrap();
    for (file, code, reason) in [
        (&missing, 3, "No such file"),
        (&broken, 1, ", line 1: invalid TOML: "),
        (&folder, 1, "not a regular file"),
    ] {
        let ran = site.typed(&["--config", file], "hello\n");
        assert_eq!((ran.code, ran.out.as_str()), (1, ""), "{ran:?}");
        assert!(ran.err.contains(file.as_str()) && ran.err.contains(reason), "{ran:?}");
        assert!(!site.path().join("data").exists(), "nothing was done");
        let create = ["workspace", "create", "--name", "a", "--config", file];
        site.fails(&create, code, reason);
        site.fails(&create, code, file);
        assert!(!site.path().join("data").exists(), "nothing was done");
    }
    let sound = site.path().join("sound.toml");
    fs::write(&sound, "provider = 'claude'").unwrap();
    let ran = site.typed(&["--config", sound.to_str().unwrap()], "hello\n");
    assert_eq!(ran.code, 0, "{ran:?}");
}
