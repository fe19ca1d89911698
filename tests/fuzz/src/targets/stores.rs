//! Files and objects of stores, with anything in them: read through the store, whose readers are private.

use std::cell::RefCell;
use std::fs;
use std::path::Path;

use agent_core::store::{BindingQuery, ReadEvents, SessionQuery, WorkspaceQuery};
use agent_core::{Error, Result, SessionId, Storage, WorkspaceId};
use agent_storage_fs::{FsConfig, Sync};
use agent_storage_s3::S3Config;
use s3_simulator::Simulator;
use tempfile::TempDir;
use tokio::runtime::{Builder, Runtime};

use crate::seal::{reseal_json, reseal_lines};
use crate::{TEXT_MAX, Target, files_below, newest};

pub(crate) const TARGETS: &[Target] = &[
    Target { name: "files", factor: 512, rounds: 60, seeds: file_seeds, run: file },
    Target { name: "objects", factor: 4096, rounds: 60, seeds: object_seeds, run: object },
];

/// Tenant whose files and objects are changed: it has the least beside every kind.
const TENANT: &str = "acme";
/// Sessions that are asked for: one of each golden store.
const SESSION: &str = "019c60d9-9ca9-72a1-89e7-bb795179bb5d";
const WORKSPACE: &str = "019c60d9-9ca6-779f-9acb-5266592f123a";

thread_local! {
    static RUNTIME: Runtime = Builder::new_current_thread().enable_all().build().unwrap();
    /// Without waiting: pauses between attempts end at once.
    static PAUSED: Runtime = Builder::new_current_thread().enable_time().start_paused(true).build().unwrap();
    static FOLDER: RefCell<Option<Folder>> = const { RefCell::new(None) };
}

/// Returns the path in the first line of an input, and the content behind it.
fn named(input: &[u8]) -> Option<(&str, &[u8])> {
    let at = input.iter().position(|byte| *byte == b'\n')?;
    Some((std::str::from_utf8(&input[..at]).ok()?, &input[at + 1..]))
}

fn with_name((name, content): (String, Vec<u8>)) -> Vec<u8> {
    [name.as_bytes(), b"\n", &content].concat()
}

/// Asks a store everything about one tenant.
async fn ask(storage: &Storage) {
    let (session, workspace) =
        (SESSION.parse::<SessionId>().unwrap(), WORKSPACE.parse::<WorkspaceId>().unwrap());
    judge(storage.sessions.load(session).await);
    judge(storage.sessions.read(session, ReadEvents::first(1000)).await);
    judge(storage.sessions.read(session, ReadEvents::last(2)).await);
    judge(storage.sessions.list(SessionQuery::new().with_hidden()).await);
    judge(storage.sessions.list(SessionQuery::new().with_workspace(workspace)).await);
    judge(storage.workspaces.load(workspace).await);
    judge(storage.workspaces.load_config(workspace).await);
    judge(storage.workspaces.list(WorkspaceQuery::new()).await);
    judge(storage.bindings.resolve(&"laptop".parse().unwrap()).await);
    judge(storage.bindings.list(BindingQuery::new()).await);
}

fn judge<T>(answer: Result<T>) {
    if let Err(error) = answer {
        check(&error);
    }
}

/// Checks that an error names the store's object, by its path, key or id, and is short.
fn check(error: &Error) {
    let text = error.to_string();
    let words = [
        "session",
        "workspace",
        "binding",
        "device",
        "agents/",
        ".toml",
        ".json",
        "tenant",
        "settings",
        "index",
    ];
    assert!(words.iter().any(|word| text.contains(word)), "the error names no object: {text}");
    assert!(text.len() <= TEXT_MAX, "the error has {} bytes: {text}", text.len());
}

/// Copy of the golden files.
struct Folder {
    temp: TempDir,
    uses: u32,
}

/// Copies of the golden files are replaced after as many uses, since a store completes what is missing.
const USES: u32 = 500;

impl Folder {
    fn new() -> Self {
        let temp = TempDir::new().unwrap();
        for (name, content) in files_below(&newest("files").1) {
            write(temp.path(), &name, &content);
        }
        Self { temp, uses: 0 }
    }
}

fn write(root: &Path, name: &str, content: &[u8]) {
    let path = root.join(name);
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    fs::write(path, content).unwrap();
}

/// Files of a store on files that are changed.
fn changed_files() -> Vec<(String, Vec<u8>)> {
    let files = files_below(&newest("files").1).into_iter();
    let in_tenant = |name: &str| name.starts_with("tenants/acme/") && !name.contains("/index/");
    files.filter(|(name, _)| in_tenant(name)).collect()
}

/// Returns the content of a file of the session with its checksums computed again.
fn resealed(content: &[u8]) -> Vec<u8> {
    let mut content = content.to_vec();
    let seed = crc32c::crc32c(format!("{TENANT}/{SESSION}/{}", newest("files").0).as_bytes());
    content.split_mut(|byte| *byte == b'\n').for_each(|line| reseal_json(line, seed));
    content
}

/// The file that the first line names, with the rest as its content: logs, snapshots, `workspace.toml`, `bindings.toml`.
fn file(input: &[u8]) {
    let Some((name, content)) = named(input) else { return };
    let Some((name, original)) = changed_files().into_iter().find(|(known, _)| known == name) else { return };
    let content = resealed(content);
    FOLDER.with_borrow_mut(|slot| {
        if slot.as_ref().is_none_or(|folder| folder.uses >= USES) {
            *slot = Some(Folder::new());
        }
        let folder = slot.as_mut().unwrap();
        folder.uses += 1;
        let root = folder.temp.path().to_owned();
        write(&root, &name, &content);
        RUNTIME.with(|runtime| {
            runtime.block_on(async {
                match FsConfig::new(&root).with_sync(Sync::Off).open().await {
                    Ok(store) => ask(&store.for_tenant(&TENANT.parse().unwrap()).into()).await,
                    Err(error) => check(&error),
                }
            });
        });
        write(&root, &name, &original);
    });
}

fn file_seeds() -> Vec<Vec<u8>> {
    let files = changed_files();
    for (name, content) in &files {
        assert!(resealed(content) == *content, "checksums are computed as the store does: {name}");
    }
    files.into_iter().map(with_name).collect()
}

/// Prefix of the objects that are changed.
const PREFIX: &str = "agents/";

fn objects() -> Vec<(String, Vec<u8>)> {
    let objects = files_below(&newest("s3").1).into_iter();
    objects.filter(|(key, _)| key.starts_with(PREFIX) && !key.contains("/default/")).collect()
}

/// The object that the first line names, which may be a new one, with the rest as its content: the log, records, index keys.
fn object(input: &[u8]) {
    let Some((name, content)) = named(input) else { return };
    if !name.starts_with(PREFIX) || name.bytes().any(|byte| !byte.is_ascii_graphic()) || name.len() > 900 {
        return;
    }
    let mut content = content.to_vec();
    reseal_lines(&mut content);
    let bucket = Simulator::new(1);
    for (key, body) in objects() {
        bucket.put_object(&key, body);
    }
    bucket.put_object(name, content);
    let credentials = [("access_key_id", "any"), ("secret_access_key", "any"), ("region", "us-east-1")];
    let config = S3Config::new("bucket").with_prefix("agents").unwrap();
    let config =
        credentials.iter().fold(config, |config, (name, value)| config.with_option(name, value).unwrap());
    let config = config.with_http_connector(bucket.connector("fuzz"));
    PAUSED.with(|runtime| {
        runtime.block_on(async {
            match config.open().await {
                Ok(store) => ask(&store.for_tenant(&TENANT.parse().unwrap()).into()).await,
                Err(error) => check(&error),
            }
        });
    });
}

fn object_seeds() -> Vec<Vec<u8>> {
    objects().into_iter().map(with_name).collect()
}
