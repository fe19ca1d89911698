//! Missing credentials: the error names the settings, and no request asks for credentials.

use std::process::Command;
use std::time::Duration;

use agent_core::ErrorKind;
use agent_storage_s3::S3Config;
use s3_simulator::Simulator;

/// The environment is that of the whole process, so that the tests run in one of their own.
const ALONE: &str = "TEST_WITHOUT_ENVIRONMENT";

/// Runs the named test in a process whose environment has these variables only; returns whether this is that process.
fn alone(test: &str, variables: &[(&str, &str)]) -> bool {
    if std::env::var_os(ALONE).is_some() {
        return true;
    }
    let mut child = Command::new(std::env::current_exe().unwrap());
    child
        .args([&format!("credentials::{test}"), "--exact", "--nocapture"])
        .env_clear()
        .env(ALONE, "1")
        .envs(variables.iter().copied());
    let done = child.output().unwrap();
    let outcome = String::from_utf8_lossy(&done.stdout).into_owned() + &String::from_utf8_lossy(&done.stderr);
    assert!(done.status.success() && outcome.contains("1 passed"), "{outcome}");
    false
}

/// What opening the address says, and how many requests it took.
async fn refusal(address: &str) -> (ErrorKind, String, usize) {
    let simulator = Simulator::new(1);
    let config = S3Config::from_url(address).unwrap().with_deadline(Duration::from_secs(20));
    // All requests go to the simulator, also those for credentials.
    let error = config.with_http_connector(simulator.connector("handle")).open().await.unwrap_err();
    (error.kind().clone(), error.to_string(), simulator.requests())
}

/// Without credentials opening fails at once, without a request, and names the variables.
#[tokio::test(start_paused = true)]
async fn missing_credentials_are_named_at_once() {
    if !alone("missing_credentials_are_named_at_once", &[]) {
        return;
    }
    for (address, variables) in [
        ("s3://bucket/agents", ["AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"]),
        ("gs://bucket/agents", ["GOOGLE_APPLICATION_CREDENTIALS", "GOOGLE_SERVICE_ACCOUNT"]),
        ("az://container/agents?account_name=mine", ["AZURE_STORAGE_ACCOUNT_KEY", "AZURE_STORAGE_SAS_TOKEN"]),
        ("az://container/agents", ["AZURE_STORAGE_ACCOUNT_NAME", "account_name"]),
    ] {
        let begun = tokio::time::Instant::now();
        let (kind, text, requests) = refusal(address).await;
        assert_eq!((kind, requests), (ErrorKind::InvalidInput, 0), "{address}: {text}");
        assert!(variables.iter().all(|name| text.contains(name)), "{text}");
        assert!(text.contains(address.split('?').next().unwrap()), "{text}");
        assert_eq!(begun.elapsed(), Duration::ZERO, "{address}");
    }
}

/// An endpoint without a scheme, and one without encryption that is not allowed, are refused at once.
#[tokio::test(start_paused = true)]
async fn wrong_endpoints_are_named_at_once() {
    if !alone("wrong_endpoints_are_named_at_once", &[]) {
        return;
    }
    let (keys, azure) = ("access_key_id=a&secret_access_key=b", "account_name=mine&access_key=YQ==");
    for (address, expected) in [
        (format!("s3://bucket/agents?{keys}&endpoint=localhost:9000"), "has no scheme"),
        (format!("s3://bucket/agents?{keys}&endpoint=127.0.0.1:1&allow_http=true"), "has no scheme"),
        (format!("s3://bucket/agents?{keys}&endpoint=http://localhost:9000"), "AWS_ALLOW_HTTP=true"),
        (format!("az://container/agents?{azure}&endpoint=localhost:9000"), "has no scheme"),
        (format!("az://container/agents?{azure}&endpoint=http://localhost:9000"), "AZURE_ALLOW_HTTP=true"),
        ("gs://bucket/agents?bearer_token=a&base_url=localhost:4443".to_owned(), "has no scheme"),
    ] {
        let begun = tokio::time::Instant::now();
        let (kind, text, requests) = refusal(&address).await;
        assert_eq!((kind, requests), (ErrorKind::InvalidInput, 0), "{address}: {text}");
        assert!(text.contains(expected), "{text}");
        assert_eq!(begun.elapsed(), Duration::ZERO, "{address}");
    }
    // Each spelling that the client takes for true is taken.
    for spelling in ["true", "TRUE", "1", "yes"] {
        let address =
            format!("s3://bucket/agents?{keys}&endpoint=http://localhost:9000&allow_http={spelling}");
        let simulator = Simulator::new(1);
        let config = S3Config::from_url(&address).unwrap();
        config.with_http_connector(simulator.connector("handle")).open().await.unwrap();
    }
}

/// The metadata service is asked if the address says so.
#[tokio::test(start_paused = true)]
async fn instance_credentials_are_requested_if_configured() {
    if !alone("instance_credentials_are_requested_if_configured", &[]) {
        return;
    }
    for address in [
        "s3://bucket?credentials=instance",
        "gs://bucket?credentials=instance",
        "az://container?account_name=mine&credentials=instance",
    ] {
        let (kind, text, requests) = refusal(address).await;
        assert!(requests > 0, "{address}: {text}");
        assert_ne!(kind, ErrorKind::InvalidInput, "{address}: {text}");
    }
    let error = S3Config::from_url("s3://bucket?credentials=guess").unwrap_err();
    assert!(error.to_string().contains("environment or instance"), "{error}");
}

/// Half of a pair is an error too, which names the other half.
#[tokio::test(start_paused = true)]
async fn half_of_the_credentials_is_refused() {
    if !alone(
        "half_of_the_credentials_is_refused",
        &[("AWS_ACCESS_KEY_ID", "key"), ("AWS_SECRET_ACCESS_KEY", "")],
    ) {
        return;
    }
    let (kind, text, requests) = refusal("s3://bucket?credentials=instance").await;
    assert_eq!((kind, requests), (ErrorKind::InvalidInput, 0), "{text}");
    assert!(text.contains("AWS_SECRET_ACCESS_KEY is not"), "{text}");
}

/// What is wrong with an address is named by its part, with the remedy, and its secrets are not shown.
#[test]
fn wrong_addresses_are_named_by_part() {
    for (address, named) in [
        ("s3://", "names no bucket"),
        ("s3:///agents", "names no bucket"),
        ("az:///agents", "names no container"),
        ("s3://key:hidden@bucket/agents", "a user before its bucket"),
        ("gs://bucket:9000/agents", "a port after its bucket"),
        ("s3://bucket/agents#hidden", "after #"),
        ("s3://bucket/agents/../hidden", "a part . or .."),
        ("s3://bucket/a hidden", "a character that an address does not have"),
        ("s3://bucket/a%20hidden", "the prefix must be"),
        ("s3://bucket/a//hidden", "the prefix must be"),
        ("s3://bucket?regoin=hidden", "unknown option \"regoin\""),
        ("gs://bucket?region=hidden", "unknown option \"region\""),
        ("az://container?endpoint_url=hidden", "unknown option \"endpoint_url\""),
        ("az://container?container_name=hidden", "unknown option \"container_name\""),
        ("s3:bucket/hidden", "names no bucket"),
        ("ftp://bucket/hidden", "no address of a bucket"),
        ("hidden", "no address of a bucket"),
    ] {
        let error = S3Config::from_url(address).unwrap_err();
        assert_eq!(*error.kind(), ErrorKind::InvalidInput, "{address}");
        let text = format!("{error} {error:?}");
        assert!(text.contains(named), "{address}: {text}");
        assert!(!text.contains("hidden"), "{address}: {text}");
    }
    for address in ["s3://bucket/agents/a", "gs://bucket/agents/a", "az://container/agents/a"] {
        assert_eq!(S3Config::from_url(address).unwrap().to_string(), address);
    }
    // A plus is a plus, as in hiddens.
    assert!(
        S3Config::from_url("s3://bucket?secret_access_key=a+b/c==&endpoint=http://localhost:9000").is_ok()
    );
}

/// So is the address of an emulator in the environment.
#[tokio::test(start_paused = true)]
async fn wrong_emulator_addresses_are_named_at_once() {
    let variables = [("AZURITE_BLOB_STORAGE_URL", "localhost:10000")];
    if !alone("wrong_emulator_addresses_are_named_at_once", &variables) {
        return;
    }
    let (kind, text, requests) = refusal("az://container/agents?use_emulator=true").await;
    assert_eq!((kind, requests), (ErrorKind::InvalidInput, 0), "{text}");
    assert!(text.contains("localhost:10000") && text.contains("has no scheme"), "{text}");
}
