//! Every public future is `Send`: its type states it, or a list that compiles only if it is.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use docs::root;

/// Lists of the futures whose types do not say that they are `Send`.
const LISTS: [&str; 7] = [
    "tests/tests/it/futures.rs",
    "agent-mcp/tests/it/futures.rs",
    "agent-acp/tests/it/futures.rs",
    "agent-storage-s3/tests/it/futures.rs",
    "agent-vault/tests/it/futures.rs",
    "agent-import/tests/it/futures.rs",
    "agent/tests/open.rs",
];

/// Library crates whose futures hosts await.
const CRATES: [&str; 15] = [
    "agent",
    "agent-acp",
    "agent-admin",
    "agent-core",
    "agent-import",
    "agent-mcp",
    "agent-rig",
    "agent-runtime",
    "agent-storage-conformance",
    "agent-storage-fs",
    "agent-storage-s3",
    "agent-storage-sqlite",
    "agent-transcript",
    "agent-vault",
    "agent-workspace",
];

/// Futures and streams of a source file whose types do not say that they are `Send`, as a list has them.
///
/// An `async fn` of a trait is `Send` by `#[async_trait]`; without the attribute, or with `?Send`, it is returned.
fn undeclared(text: &str) -> Vec<String> {
    let product = text.split("#[cfg(test)]\nmod tests {").next().unwrap();
    let (mut found, mut at, mut is_trait, mut attribute) = (Vec::new(), String::new(), false, "");
    let lines: Vec<_> = product.lines().collect();
    for (number, line) in lines.iter().enumerate() {
        let code = line.trim_start();
        if line.starts_with("#[async_trait") {
            attribute = line;
        }
        let rest = ["impl ", "impl<", "pub trait "].iter().find_map(|word| line.strip_prefix(word));
        if let Some(rest) = rest {
            is_trait = line.starts_with("pub trait");
            at = named(rest);
            let own = rest.split(" for ").nth(1).map(named);
            let is_future = ["Future for ", "Stream for "].iter().any(|name| rest.contains(name));
            if let Some(own) = own.as_ref().filter(|own| is_future && is_public(product, own)) {
                found.push(format!("of::<{own}"));
            }
            at = own.unwrap_or(at);
        } else if line.starts_with('}') {
            (at, is_trait, attribute) = (String::new(), false, "");
        }
        let is_public = code.starts_with("pub ") || (is_trait && line.starts_with("    "));
        let Some((before, after)) = code.split_once("fn ").filter(|_| is_public && !code.starts_with("//"))
        else {
            continue;
        };
        let name = after.split(|c| !is_word(c)).next().unwrap();
        let signature = lines[number..].iter().map(|line| line.trim()).take_while(|line| !line.is_empty());
        let signature: String = signature.collect::<Vec<_>>().join(" ");
        let signature = signature.split([';', '{']).next().unwrap();
        let is_async = before.ends_with("async ") && !(is_trait && attribute == "#[async_trait]");
        let returned = signature.rsplit_once("-> ").map_or("", |(_, returned)| returned);
        let is_opaque = ["impl Future", "impl Stream", "LocalBox"].iter().any(|it| returned.contains(it));
        if is_async || (is_opaque && !returned.contains("+ Send")) {
            let of = if at.is_empty() { String::new() } else { format!("{at}::") };
            found.push(format!("{of}{name}("));
        }
    }
    found
}

/// The name of the type with which a text begins, behind its generic parameters.
fn named(text: &str) -> String {
    let mut depth = 0;
    let begin = text.starts_with(|c: char| !c.is_uppercase()).then(|| {
        text.find(|c| {
            depth += i32::from(c == '<') - i32::from(c == '>');
            depth < 0
        })
    });
    let text = begin.flatten().map_or(text, |end| text[end + 1..].trim_start());
    text.chars().take_while(|c| is_word(*c)).collect()
}

fn is_word(c: char) -> bool {
    c.is_alphanumeric() || c == '_'
}

fn is_public(text: &str, name: &str) -> bool {
    ["struct", "enum"].iter().any(|word| text.contains(&format!("pub {word} {name}")))
}

fn read(folder: &Path, found: &mut Vec<String>) {
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            read(&path, found);
        } else if path.extension().is_some_and(|it| it == "rs") {
            found.extend(undeclared(&fs::read_to_string(&path).unwrap()));
        }
    }
}

#[test]
fn every_public_future_is_checked_to_be_send() {
    let lists: String = LISTS.iter().map(|list| fs::read_to_string(root().join(list)).unwrap()).collect();
    let (mut missing, mut seen) = (BTreeMap::new(), 0);
    for name in CRATES {
        let mut found = Vec::new();
        read(&root().join(name).join("src"), &mut found);
        seen += found.len();
        let is_listed = |future: &String| {
            // Not `Type::close(` in `OtherType::close(`.
            lists.match_indices(future.as_str()).any(|(at, _)| {
                !lists[..at].ends_with(is_word)
                    && (future.ends_with('(') || !lists[at + future.len()..].starts_with(is_word))
            })
        };
        found.retain(|future| !is_listed(future));
        if !found.is_empty() {
            missing.insert(name, found);
        }
    }
    println!("proof: {seen} public futures are listed");
    assert!(seen > 150, "the sources are read: {seen}");
    assert!(missing.is_empty(), "list these in `tests/it/futures.rs` of their crate: {missing:#?}");
}

#[test]
fn a_future_not_declared_send_is_found() {
    let text = "\
pub async fn free() {}
fn private() {}
pub(crate) async fn inner() {}
pub struct Run;
impl Stream for Run {}
impl<'a, S: Into<Store>> Export<'a, S> {
    pub async fn read(
        store: S,
    ) -> Self {}
    async fn own() {}
}
impl Wait {
    pub fn short(&self) -> impl Future<Output = ()> {}
    pub fn long(&self) -> impl Future<Output = ()> + Send {}
}
#[async_trait]
pub trait Store {
    async fn load(&self);
}
#[async_trait(?Send)]
pub trait Near {
    async fn load(&self);
}
";
    let found = ["free(", "of::<Run", "Export::read(", "Wait::short(", "Near::load("];
    assert_eq!(undeclared(text), found);
}
