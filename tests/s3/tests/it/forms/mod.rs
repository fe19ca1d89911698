//! Stored forms of a bucket: this version writes the bytes of the golden files of the format, and reads them all. See
//! `docs/stability.md`.

#[path = "../../../../tests/it/forms/golden.rs"]
mod golden;
#[path = "../../../../tests/it/forms/script.rs"]
mod script;

use agent_core::{Backend, SessionStore, TenantId};
use agent_storage_s3::{IndexedField, S3Config, S3Store};
use golden::Files;
use s3_simulator::Simulator;
use script::{check, cursors, effects, go_on};

const FORM: &str = "s3";
const CURSORS: &str = "cursors";

fn format() -> u64 {
    S3Store::FORMATS[0].1
}

async fn open(simulator: &Simulator) -> S3Store {
    let credentials = [("access_key_id", "any"), ("secret_access_key", "any"), ("region", "us-east-1")];
    let config = S3Config::new("bucket").with_prefix("agents").unwrap();
    let config = credentials
        .iter()
        .fold(config, |config, (name, value)| config.with_option(name, value).unwrap())
        .with_http_connector(simulator.connector("client"))
        .with_effects(effects(2))
        .with_index([IndexedField::Label("project".to_owned()), IndexedField::Creator]);
    config.unwrap().open().await.unwrap()
}

/// Returns the objects of a bucket, but what says that its server was probed: it holds the time of the server, and is
/// written again if it does not fit.
fn objects(simulator: &Simulator) -> Files {
    let keys = simulator.keys().into_iter().filter(|key| !key.starts_with("agents/probe/"));
    keys.map(|key| (key.clone(), simulator.object(&key).unwrap().to_vec())).collect()
}

#[tokio::test]
async fn objects_are_written_as_declared() {
    let simulator = Simulator::new(1);
    let store = open(&simulator).await;
    script::write(&store).await;
    let cursors = cursors(&store).await;
    Backend::close(&store).await.unwrap();
    let mut objects = objects(&simulator);
    for part in [
        "/settings",
        "generations/gone",
        "work/v7/",
        "/c/",
        "/b/",
        "/workspaces/",
        "/bindings/",
        "/idx/child/",
        "/idx/blob/",
        "/idx/t/",
        "/idx/w/",
        "/idx/f/",
        "/idx/l/",
        "/idx/ws/",
        "/idx/bound/",
    ] {
        assert!(objects.keys().any(|key| key.contains(part)), "the script writes no {part}");
    }
    objects.insert(CURSORS.to_owned(), cursors.into_bytes());
    golden::compare(FORM, format(), &objects);
}

#[tokio::test]
async fn golden_objects_are_read_whole() {
    let simulator = Simulator::new(1);
    let mut objects = golden::read(FORM, format());
    let cursors = String::from_utf8(objects.remove(CURSORS).unwrap()).unwrap();
    for (key, bytes) in objects {
        simulator.put_object(&key, bytes);
    }
    let store = open(&simulator).await;
    let tenants = store.tenants(None).await.unwrap();
    let expected = ["acme", "default"].map(|name| name.parse::<TenantId>().unwrap());
    assert_eq!((tenants.items.as_slice(), tenants.damaged.len()), (&expected[..], 0));
    assert_eq!(store.maintenance().check().await.unwrap(), [], "every key is there");
    go_on(&store, &cursors).await;
    check(&store).await;
}
