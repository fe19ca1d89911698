//! Common code of the tests: the plain client on a simulator.

use object_store::aws::{AmazonS3, AmazonS3Builder};
use object_store::path::Path;
use object_store::{PutMode, PutOptions, RetryConfig, UpdateVersion};
use s3_simulator::Simulator;

/// Whether each cut is tried in every way, and not in one or two in turn, which takes minutes: `AGENT_TEST_THOROUGH=1`.
pub(crate) fn is_thorough() -> bool {
    std::env::var_os("AGENT_TEST_THOROUGH").is_some()
}

/// The real client with its default settings.
pub(crate) fn client(simulator: &Simulator) -> AmazonS3 {
    builder(simulator, "client").build().unwrap()
}

/// The real client, named, that tries everything once.
pub(crate) fn client_without_retries(simulator: &Simulator, name: &str) -> AmazonS3 {
    let retry = RetryConfig { max_retries: 0, ..RetryConfig::default() };
    builder(simulator, name).with_retry(retry).build().unwrap()
}

fn builder(simulator: &Simulator, name: &str) -> AmazonS3Builder {
    AmazonS3Builder::new()
        .with_bucket_name("bucket")
        .with_access_key_id("any")
        .with_secret_access_key("any")
        .with_http_connector(simulator.connector(name))
}

pub(crate) fn path(key: &str) -> Path {
    Path::parse(key).unwrap()
}

pub(crate) fn create() -> PutOptions {
    PutMode::Create.into()
}

pub(crate) fn update(etag: &str) -> PutOptions {
    PutMode::Update(UpdateVersion { e_tag: Some(etag.to_owned()), version: None }).into()
}

/// The names of an error of the client, as the caller tells them apart.
pub(crate) fn name<T>(result: &object_store::Result<T>) -> &'static str {
    match result {
        Ok(_) => "Ok",
        Err(object_store::Error::AlreadyExists { .. }) => "AlreadyExists",
        Err(object_store::Error::Precondition { .. }) => "Precondition",
        Err(object_store::Error::NotFound { .. }) => "NotFound",
        Err(object_store::Error::NotModified { .. }) => "NotModified",
        Err(object_store::Error::PermissionDenied { .. }) => "PermissionDenied",
        Err(object_store::Error::Generic { .. }) => "Generic",
        Err(_) => "other",
    }
}
