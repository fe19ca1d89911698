//! The S3 store on a simulator.

#![allow(dead_code, reason = "each test program uses its own part of it")]
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use agent_storage_s3::S3Config;
use object_store::client::HttpConnector;
use s3_simulator::{Dialect, Simulator};

/// What opens a store on a simulator; its requests bear the client's name.
pub(crate) fn config(simulator: &Simulator, client: &str) -> S3Config {
    match simulator.dialect() {
        Dialect::S3 => config_of(simulator.connector(client)),
        Dialect::Gcs => S3Config::from_url("gs://bucket/agents?bearer_token=any")
            .unwrap()
            .with_http_connector(simulator.connector(client)),
    }
}

/// What opens a store that is reached by a connector.
pub(crate) fn config_of(connector: impl HttpConnector) -> S3Config {
    let credentials = [("access_key_id", "any"), ("secret_access_key", "any"), ("region", "us-east-1")];
    let config = S3Config::new("bucket").with_prefix("agents").unwrap();
    credentials
        .iter()
        .fold(config, |config, (name, value)| config.with_option(name, value).unwrap())
        .with_http_connector(connector)
}
