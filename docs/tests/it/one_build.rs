//! One build: every part of the workspace selects the same features of other packages, so that none is built twice.

use std::collections::{BTreeMap, BTreeSet};
use std::process::Command;

use docs::root;
use serde_json::Value;

const BRIDGES: [&str; 3] = ["agent-rig", "agent-acp", "agent-mcp"];

/// What differs and may: nothing of ours is built on it.
const MAY_DIFFER: [&str; 1] = ["mime_guess"];

fn cargo(arguments: &[&str]) -> String {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let output =
        Command::new(cargo).args(arguments).args(["--offline", "--locked"]).current_dir(root()).output();
    let output = output.unwrap();
    assert!(output.status.success(), "cargo {arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

/// The sets of features with which packages of others are built, by package: what runs in the compiler may have another one.
type Build = BTreeMap<String, BTreeSet<String>>;

/// Returns what a selection of packages builds, for tests or for a program alone.
fn built(selection: &[&str], edges: &str) -> Build {
    let mut build = Build::new();
    let tree = cargo(&[&["tree", "--prefix=none", "--format={p}|{f}", "-e", edges], selection].concat());
    for line in tree.lines() {
        let Some((package, features)) = line.split_once('|') else { continue };
        // A folder is named for packages of ours only.
        if !package.contains("(/") && !package.contains(":\\") {
            let features = features.trim_end_matches(" (*)").to_owned();
            build.entry(package.to_owned()).or_default().insert(features);
        }
    }
    assert!(!build.is_empty(), "cargo tells what {selection:?} builds");
    build
}

/// Names what a selection builds with other features than the whole.
fn differences(whole: &Build, name: &str, part: &Build, wrong: &mut Vec<String>) {
    for (package, features) in part {
        let all = whole.get(package).cloned().unwrap_or_default();
        let may_differ = MAY_DIFFER.iter().any(|name| package.starts_with(&format!("{name} ")));
        for other in features.difference(&all).filter(|_| !may_differ) {
            wrong.push(format!("{name} builds {package} with [{other}], all with {all:?}"));
        }
    }
}

/// `cargo test -p` of any member, `cargo test` and `cargo run` select the same features, so that they share one build; and the bridges
/// another. Where this fails, add the missing features to `tests/workspace-hack/Cargo.toml`, or that package to the dev-dependencies.
#[test]
fn every_selection_builds_the_same() {
    let metadata: Value =
        serde_json::from_str(&cargo(&["metadata", "--no-deps", "--format-version=1"])).unwrap();
    let members: Vec<_> = metadata["packages"]
        .as_array()
        .unwrap()
        .iter()
        .map(|package| package["name"].as_str().unwrap())
        .collect();
    assert!(members.len() > 20, "{members:?}");
    let mut wrong = Vec::new();

    let without: Vec<_> = BRIDGES.iter().flat_map(|bridge| ["--exclude", bridge]).collect();
    let whole = built(&[&["--workspace"], &without[..]].concat(), "normal,build,dev");
    for member in members.iter().filter(|member| !BRIDGES.contains(member)) {
        let part = built(&["-p", member], "normal,build,dev");
        differences(&whole, &format!("cargo test -p {member}"), &part, &mut wrong);
    }
    differences(&whole, "cargo test", &built(&[], "normal,build,dev"), &mut wrong);
    differences(&whole, "cargo run", &built(&[], "normal,build"), &mut wrong);

    let features = ["--features", "agent-acp/mcp,agent-cli/acp,agent-cli/mcp,agent-cli/models"];
    let all: Vec<_> =
        BRIDGES.iter().chain(&["agent-cli"]).flat_map(|bridge| ["-p", bridge]).chain(features).collect();
    let bridges = built(&all, "normal,build,dev");
    for bridge in BRIDGES {
        let part = built(&["-p", bridge], "normal,build,dev");
        differences(&bridges, &format!("cargo test -p {bridge}"), &part, &mut wrong);
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
    let order = |build: &Build| {
        build.iter().any(|(name, features)| {
            name.starts_with("serde_json ")
                && features.iter().any(|features| features.contains("preserve_order"))
        })
    };
    assert_eq!((order(&whole), order(&bridges)), (false, true), "both orders of members are tested");
}
