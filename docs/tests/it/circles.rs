//! No circle of files or of folders: within each crate every `use` points down, so that a reader can begin at the bottom.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

/// Where the files of each crate lie.
const SOURCES: [&str; 22] = [
    "agent-core/src",
    "agent-transcript/src",
    "agent-admin/src",
    "agent-workspace/src",
    "agent-vault/src",
    "agent-import/src",
    "agent-runtime/src",
    "agent-rig/src",
    "agent-acp/src",
    "agent-mcp/src",
    "agent-cli/src",
    "agent-storage-conformance/src",
    "agent-storage-fs/src",
    "agent-storage-sqlite/src",
    "agent-storage-postgres/src",
    "agent-storage-s3/src",
    "agent-storage-s3/simulator/src",
    "agent-storage-s3/servers/src",
    "benches/src",
    "tests/model-servers/src",
    "docs/src",
    "docs/writing-a-backend/src",
];

type Segments = Vec<String>;
/// What each file or folder needs.
type Arrows = BTreeMap<Segments, BTreeSet<Segments>>;

/// One file as a module: what it takes from others, and what it hands on under its own name.
#[derive(Default)]
struct Module {
    uses: Vec<Segments>,
    hands_on: BTreeMap<String, Segments>,
}

/// The modules of a crate, by their paths from its root.
fn modules(source: &Path) -> BTreeMap<Segments, Module> {
    let mut modules = BTreeMap::new();
    let mut folders = vec![(source.to_owned(), Segments::new())];
    while let Some((folder, at)) = folders.pop() {
        for entry in fs::read_dir(&folder).unwrap() {
            let path = entry.unwrap().path();
            let stem = path.file_stem().unwrap().to_str().unwrap().to_owned();
            let own = [at.clone(), vec![stem.clone()]].concat();
            if path.is_dir() && stem != "bin" {
                folders.push((path, own));
            } else if path.extension().is_some_and(|it| it == "rs") && !stem.ends_with("tests") {
                let own = if ["mod", "lib", "main"].contains(&&*stem) { at.clone() } else { own };
                let text = code(&fs::read_to_string(&path).unwrap());
                modules.insert(own.clone(), module(&text, &own));
            }
        }
    }
    modules
}

/// The text without comments and without its tests.
fn code(text: &str) -> String {
    let product = text.split("#[cfg(test)]\nmod tests {").next().unwrap();
    product.lines().map(|line| line.split("//").next().unwrap()).collect::<Vec<_>>().join("\n")
}

fn module(text: &str, own: &[String]) -> Module {
    let mut module = Module::default();
    let children: BTreeSet<&str> = text
        .lines()
        .filter_map(|line| {
            line.trim_start_matches("pub ").trim_start_matches("pub(crate) ").strip_prefix("mod ")
        })
        .filter_map(|rest| rest.strip_suffix(';'))
        .collect();
    let (mut rest, mut lines) = (String::new(), text.lines());
    while let Some(line) = lines.next() {
        let trimmed = line.trim_start();
        let Some((before, tree)) = trimmed.split_once("use ").filter(|(before, _)| {
            before.is_empty() || *before == "pub " || (before.starts_with("pub(") && before.ends_with(") "))
        }) else {
            rest.push_str(line);
            rest.push('\n');
            continue;
        };
        let mut tree = tree.to_owned();
        while !tree.contains(';') {
            tree.push_str(lines.next().unwrap());
        }
        for path in expand(tree.trim_end_matches(';')) {
            let Some(path) = from_root(&path, own, &children) else { continue };
            match path.last() {
                Some(name) if !before.is_empty() => drop(module.hands_on.insert(name.clone(), path.clone())),
                _ => module.uses.push(path),
            }
        }
    }
    for (at, _) in rest.match_indices("::") {
        let begin = rest[..at].rfind(|c: char| !is_word(c)).map_or(0, |before| before + 1);
        let tail = &rest[begin..];
        let path = &tail[..tail.find(|c: char| !is_word(c) && c != ':').unwrap_or(tail.len())];
        let path: Segments = path.split("::").filter(|it| !it.is_empty()).map(str::to_owned).collect();
        if !rest[..begin].ends_with("::") {
            module.uses.extend(from_root(&path, own, &children));
        }
    }
    module
}

fn is_word(c: char) -> bool {
    c.is_alphanumeric() || c == '_'
}

/// The paths of a tree of imports: `a::{b, c::{d, e}}` is three.
fn expand(tree: &str) -> Vec<Segments> {
    let segments = |text: &str| -> Segments {
        text.split(" as ")
            .next()
            .unwrap()
            .split("::")
            .map(|it| it.trim().to_owned())
            .filter(|it| !it.is_empty())
            .collect()
    };
    let Some(open) = tree.find('{') else { return vec![segments(tree)] };
    let (start, inside) = (segments(&tree[..open]), &tree[open + 1..tree.rfind('}').unwrap()]);
    let (mut depth, mut parts, mut part) = (0, Vec::new(), String::new());
    for c in inside.chars().chain([',']) {
        depth += i32::from(c == '{') - i32::from(c == '}');
        if c == ',' && depth == 0 {
            parts.push(std::mem::take(&mut part));
        } else {
            part.push(c);
        }
    }
    let parts = parts.iter().map(|part| part.trim()).filter(|part| !part.is_empty());
    parts.flat_map(expand).map(|end| [start.clone(), end].concat()).collect()
}

/// A path as it is from the crate's root; `None` for one of another crate.
fn from_root(path: &[String], own: &[String], children: &BTreeSet<&str>) -> Option<Segments> {
    let path: Vec<_> = path.iter().filter(|it| *it != "self").cloned().collect();
    let first = path.first()?;
    match &**first {
        "crate" => Some(path[1..].to_vec()),
        "super" => Some([&own[..own.len().checked_sub(1)?], &path[1..]].concat()),
        child if children.contains(child) => Some([own, &path].concat()),
        _ => None,
    }
}

/// The file in which the thing at `path` is defined.
fn definition<'m>(modules: &'m BTreeMap<Segments, Module>, path: &[String]) -> Option<&'m Segments> {
    let (mut path, mut hops) = (path.to_vec(), 0);
    loop {
        let length = (0..=path.len()).rev().find(|length| modules.contains_key(&path[..*length]))?;
        let (at, module) = modules.get_key_value(&path[..length])?;
        let onward = path.get(length).and_then(|name| module.hands_on.get(name));
        match onward {
            Some(onward) if hops < 10 => path = [onward.clone(), path[length + 1..].to_vec()].concat(),
            _ => return Some(at),
        }
        hops += 1;
    }
}

/// The folder, or the file beside the crate's root, to which a path leads; `None` for the root itself.
fn folder_of(modules: &BTreeMap<Segments, Module>, path: &[String]) -> Option<Segments> {
    let first = path.get(..1)?;
    modules.keys().any(|own| own.starts_with(first)).then(|| first.to_vec())
}

/// The circles of a crate, as texts.
fn circles(name: &str, arrows: &Arrows) -> Vec<String> {
    let mut done = BTreeSet::new();
    let found = arrows.keys().filter_map(|at| circle(arrows, at, &mut Vec::new(), &mut done));
    found
        .map(|circle| circle.iter().map(|it| it.join("::")).collect::<Vec<_>>().join(" -> "))
        .map(|circle| format!("{name}: {circle}"))
        .collect()
}

/// A circle of files that begins at `at`, if there is one on the way down from there.
fn circle(
    arrows: &Arrows,
    at: &Segments,
    way: &mut Vec<Segments>,
    done: &mut BTreeSet<Segments>,
) -> Option<Vec<Segments>> {
    if let Some(begin) = way.iter().position(|it| it == at) {
        return Some([&way[begin..], std::slice::from_ref(at)].concat());
    }
    if !done.insert(at.clone()) {
        return None;
    }
    way.push(at.clone());
    let found = arrows[at].iter().find_map(|next| circle(arrows, next, way, done));
    way.pop();
    found
}

#[test]
fn no_crate_has_import_cycles() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
    let mut found = Vec::new();
    let mut count = 0;
    for name in SOURCES {
        let modules = modules(&root.join(name));
        let arrows: Arrows = modules
            .iter()
            .map(|(own, module)| {
                let used = module.uses.iter().filter_map(|path| definition(&modules, path)).cloned();
                (own.clone(), used.filter(|it| it != own).collect())
            })
            .collect();
        count += arrows.values().map(BTreeSet::len).sum::<usize>();
        found.extend(circles(name, &arrows));
    }
    assert!(count > 500, "the imports are read: {count}");
    assert!(found.is_empty(), "files that need each other: {found:#?}");
}

/// A reader who follows a path does not know what a folder re-exports: here it leads to the folder that it names.
#[test]
fn no_crate_has_folders_in_a_cycle() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
    let (mut found, mut count) = (Vec::new(), 0);
    for name in SOURCES {
        let modules = modules(&root.join(name));
        let mut arrows = Arrows::new();
        for (own, module) in modules.iter().filter(|(own, _)| !own.is_empty()) {
            let folder = own[..1].to_vec();
            let handed_on = module.hands_on.values();
            let used = module.uses.iter().chain(handed_on).filter_map(|path| folder_of(&modules, path));
            arrows.entry(folder.clone()).or_default().extend(used.filter(|it| *it != folder));
        }
        count += arrows.values().map(BTreeSet::len).sum::<usize>();
        found.extend(circles(name, &arrows));
    }
    assert!(count > 200, "the imports are read: {count}");
    assert!(found.is_empty(), "folders that need each other: {found:#?}");
}
