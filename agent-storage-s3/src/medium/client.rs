//! Clients of `object_store` for each kind of server, made from the options and the environment.

use std::sync::Arc;

use agent_core::{Error, Result, Timestamp, async_trait};
use bytes::{Bytes, BytesMut};
use chrono::DateTime;
use futures::TryStreamExt;
use object_store::aws::{AmazonS3Builder, AmazonS3ConfigKey};
#[cfg(feature = "azure")]
use object_store::azure::{AzureConfigKey, MicrosoftAzureBuilder};
use object_store::client::{
    HttpClient, HttpConnector, HttpError, HttpRequest, HttpResponse, HttpService, ReqwestConnector,
};
#[cfg(feature = "gcs")]
use object_store::gcp::{GoogleCloudStorageBuilder, GoogleConfigKey};
use object_store::list::PaginatedListStore;
use object_store::multipart::MultipartStore;
use object_store::{ClientConfigKey, ClientOptions, GetResult, ObjectStore, RetryConfig};

use crate::config::S3Config;
use crate::dialect::{Credentials, Dialect};

/// What the store needs of a client.
pub(crate) trait Client: ObjectStore + PaginatedListStore + MultipartStore {}

impl<C: ObjectStore + PaginatedListStore + MultipartStore> Client for C {}

/// Client of a bucket, and the place that its requests go to: text that differs if the server may be another one.
#[derive(Debug)]
pub(crate) struct Connected {
    pub(crate) client: Arc<dyn Client>,
    pub(crate) place: String,
}

/// Returns the client. It never retries by itself, because only the protocol can decide whether a retry is safe.
pub(crate) fn connect(config: &S3Config) -> Result<Connected> {
    match config.dialect {
        Dialect::S3 => s3(config),
        #[cfg(feature = "gcs")]
        Dialect::Gcs => gcs(config),
        #[cfg(feature = "azure")]
        Dialect::Azure => azure(config),
        #[cfg(not(all(feature = "gcs", feature = "azure")))]
        _ => Err(Error::unsupported(config.dialect.missing().unwrap_or_default())),
    }
}

/// Returns the retries of the client: none.
fn no_retries() -> RetryConfig {
    RetryConfig { max_retries: 0, ..RetryConfig::default() }
}

/// The store limits the time of a request itself, since the limit depends on its size.
const TIMEOUT: (ClientConfigKey, &str) = (ClientConfigKey::Timeout, "1day");

fn s3(config: &S3Config) -> Result<Connected> {
    use AmazonS3ConfigKey as Key;
    let mut builder = AmazonS3Builder::from_env()
        .with_config(Key::Client(TIMEOUT.0), TIMEOUT.1)
        .with_config(Key::DisableBulkDelete, "true");
    for (name, value) in &config.options {
        builder = builder.with_config(name.parse().map_err(|error| unfit(config, error))?, value);
    }
    let value = |key: Key| builder.get_config_value(&key).filter(|value| !value.is_empty());
    let has = |keys: &[Key]| keys.iter().all(|key| value(*key).is_some());
    let is = |key: Key| value(key).is_some_and(|value| is_true(&value));
    let given = match (has(&[Key::AccessKeyId]), has(&[Key::SecretAccessKey])) {
        (true, false) => return Err(half(config, "AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY")),
        (false, true) => return Err(half(config, "AWS_SECRET_ACCESS_KEY", "AWS_ACCESS_KEY_ID")),
        (both, _) => {
            both || has(&[Key::WebIdentityTokenFile, Key::RoleArn])
                || has(&[Key::ContainerCredentialsRelativeUri])
                || has(&[Key::ContainerCredentialsFullUri, Key::ContainerAuthorizationTokenFile])
                || is(Key::SkipSignature)
        }
    };
    if !given && config.credentials == Credentials::Environment {
        return Err(no_credentials(
            config,
            "AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, and AWS_SESSION_TOKEN if they are temporary (profiles in \
             ~/.aws are not read)",
        ));
    }
    let endpoint = value(Key::S3Endpoint).or_else(|| value(Key::Endpoint));
    if let Some(endpoint) = &endpoint {
        check_endpoint(config, endpoint, is(Key::Client(ClientConfigKey::AllowHttp)), "AWS_ALLOW_HTTP")?;
    }
    let endpoint = endpoint.unwrap_or_else(|| {
        format!("AWS {}", value(Key::Region).or_else(|| value(Key::DefaultRegion)).unwrap_or_default())
    });
    let client = builder
        .with_bucket_name(config.bucket())
        .with_retry(no_retries())
        .with_http_connector(Observer::new(config))
        .build()
        .map_err(|error| unfit(config, error))?;
    Ok(Connected { client: Arc::new(client), place: endpoint })
}

/// Returns whether the client takes the value of an option for true.
fn is_true(value: &str) -> bool {
    matches!(value.to_ascii_lowercase().as_str(), "1" | "true" | "on" | "yes" | "y")
}

/// Checks the address of a server: the client panics without a scheme, and takes a refused one for a server that is away.
fn check_endpoint(config: &S3Config, endpoint: &str, allows_http: bool, variable: &str) -> Result<()> {
    let scheme = endpoint.split_once("://").map(|(scheme, _)| scheme.to_ascii_lowercase());
    match scheme.as_deref() {
        Some("https") => Ok(()),
        Some("http") if allows_http => Ok(()),
        Some("http") => Err(Error::invalid(format!(
            "the endpoint {endpoint} of {config} is not encrypted; to allow that set {variable}=true, or write \
             ?allow_http=true at the end of the address"
        ))),
        _ => Err(Error::invalid(format!(
            "the endpoint {endpoint:?} of {config} has no scheme; write it with https:// or http:// in front"
        ))),
    }
}

#[cfg(feature = "gcs")]
fn gcs(config: &S3Config) -> Result<Connected> {
    use GoogleConfigKey as Key;
    let mut builder = GoogleCloudStorageBuilder::from_env().with_config(Key::Client(TIMEOUT.0), TIMEOUT.1);
    for (name, value) in &config.options {
        builder = builder.with_config(name.parse().map_err(|error| unfit(config, error))?, value);
    }
    let value = |key: Key| builder.get_config_value(&key).filter(|value| !value.is_empty());
    let keys = [Key::ServiceAccount, Key::ServiceAccountKey, Key::ApplicationCredentials, Key::BearerToken];
    // What `gcloud auth application-default login` writes, where the client looks for it.
    let home = std::env::var_os(if cfg!(windows) { "APPDATA" } else { "HOME" });
    let folder = if cfg!(windows) { "gcloud" } else { ".config/gcloud" };
    let login = home.is_some_and(|home| {
        std::path::Path::new(&home).join(folder).join("application_default_credentials.json").exists()
    });
    let given = login || keys.into_iter().any(|key| value(key).is_some());
    if !given && config.credentials == Credentials::Environment {
        return Err(no_credentials(
            config,
            "GOOGLE_APPLICATION_CREDENTIALS or GOOGLE_SERVICE_ACCOUNT (the path of a key file), or \
             GOOGLE_SERVICE_ACCOUNT_KEY (its contents), or run `gcloud auth application-default login`",
        ));
    }
    let place = match value(Key::BaseUrl) {
        Some(url) => {
            // The client takes plain HTTP by itself here, unless it is told not to.
            let allows_http = is_true(&value(Key::Client(ClientConfigKey::AllowHttp)).unwrap_or_default());
            check_endpoint(config, &url, allows_http, "GOOGLE_ALLOW_HTTP")?;
            url
        }
        None => "Google".to_owned(),
    };
    let client = builder
        .with_bucket_name(config.bucket())
        .with_retry(no_retries())
        .with_http_connector(Observer::new(config))
        .build()
        .map_err(|error| unfit(config, error))?;
    Ok(Connected { client: Arc::new(client), place })
}

#[cfg(feature = "azure")]
fn azure(config: &S3Config) -> Result<Connected> {
    use AzureConfigKey as Key;
    let mut builder = MicrosoftAzureBuilder::from_env().with_config(Key::Client(TIMEOUT.0), TIMEOUT.1);
    for (name, value) in &config.options {
        builder = builder.with_config(name.parse().map_err(|error| unfit(config, error))?, value);
    }
    let value = |key: Key| builder.get_config_value(&key).filter(|value| !value.is_empty());
    let has = |keys: &[Key]| keys.iter().all(|key| value(*key).is_some());
    let is = |key: Key| value(key).is_some_and(|value| is_true(&value));
    let emulated = is(Key::UseEmulator);
    if !emulated && !has(&[Key::AccountName]) {
        return Err(Error::invalid(format!(
            "no storage account for {config}: set AZURE_STORAGE_ACCOUNT_NAME, or write ?account_name=NAME at the end of \
             the address"
        )));
    }
    let given = emulated
        || [Key::AccessKey, Key::Token, Key::SasKey].into_iter().any(|key| value(key).is_some())
        || has(&[Key::ClientId, Key::AuthorityId, Key::ClientSecret])
        || has(&[Key::ClientId, Key::AuthorityId, Key::FederatedTokenFile])
        || has(&[Key::FabricTokenServiceUrl, Key::FabricSessionToken])
        || is(Key::UseAzureCli)
        || is(Key::SkipSignature);
    if !given && config.credentials == Credentials::Environment {
        return Err(no_credentials(
            config,
            "AZURE_STORAGE_ACCOUNT_KEY, or AZURE_STORAGE_SAS_TOKEN, or AZURE_CLIENT_ID, AZURE_TENANT_ID and \
             AZURE_CLIENT_SECRET, or AZURE_USE_AZURE_CLI=true",
        ));
    }
    let account = value(Key::AccountName).unwrap_or_default();
    let place = match value(Key::Endpoint) {
        Some(endpoint) => {
            check_endpoint(
                config,
                &endpoint,
                is(Key::Client(ClientConfigKey::AllowHttp)),
                "AZURE_ALLOW_HTTP",
            )?;
            endpoint
        }
        None if emulated => {
            let url = std::env::var("AZURITE_BLOB_STORAGE_URL").unwrap_or_default();
            if !url.is_empty() {
                check_endpoint(config, &url, true, "AZURE_ALLOW_HTTP")?;
            }
            format!("emulator {url}")
        }
        None => format!("Azure fabric={}", is(Key::UseFabricEndpoint)),
    };
    let client = builder
        .with_container_name(config.bucket())
        .with_retry(no_retries())
        .with_http_connector(Observer::new(config))
        .build()
        .map_err(|error| unfit(config, error))?;
    Ok(Connected { client: Arc::new(client), place: format!("{place} {account}") })
}

fn unfit(config: &S3Config, source: object_store::Error) -> Error {
    Error::invalid(format!("the options of the store {config} do not fit together")).with_source(source)
}

fn half(config: &S3Config, set: &str, unset: &str) -> Error {
    Error::invalid(format!(
        "half of the credentials for {config}: {set} is set and {unset} is not; set both or none"
    ))
}

fn no_credentials(config: &S3Config, variables: &str) -> Error {
    Error::invalid(format!(
        "no credentials for {config}: set {variables}; or, on a machine of the cloud that has a role, write \
         ?credentials=instance at the end of the address"
    ))
}

/// Reads the body of an answer; `None` if it has more bytes than `most`, regardless of the length that it declares.
pub(crate) async fn body(found: GetResult, most: u64) -> object_store::Result<Option<Bytes>> {
    if found.range.end.saturating_sub(found.range.start) > most {
        return Ok(None);
    }
    let mut stream = found.into_stream();
    let mut all = stream.try_next().await?.unwrap_or_default();
    // Most answers come in one piece, which is not copied.
    if all.len() as u64 <= most
        && let Some(next) = stream.try_next().await?
    {
        let mut pieces = BytesMut::from(all);
        pieces.extend_from_slice(&next);
        while pieces.len() as u64 <= most
            && let Some(next) = stream.try_next().await?
        {
            pieces.extend_from_slice(&next);
        }
        all = pieces.freeze();
    }
    Ok((all.len() as u64 <= most).then_some(all))
}

/// Name that the server gives itself, from the header `Server` of an answer.
#[derive(Clone, Debug)]
pub(crate) struct ServerName(pub(crate) String);

/// Time of an answer by the server's clock, from its header `Date`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ServerTime(pub(crate) Timestamp);

impl ServerTime {
    /// Parses a date as HTTP writes it, such as `Sun, 15 Feb 2026 10:30:00 GMT`.
    fn parse(date: &[u8]) -> Option<Self> {
        let time = DateTime::parse_from_rfc2822(std::str::from_utf8(date).ok()?).ok()?;
        Some(Self(Timestamp::from_micros(time.timestamp_micros())))
    }
}

/// Sends requests by another client, and passes on the name and the time of the server with each answer.
#[derive(Clone, Debug)]
struct Observer(Arc<dyn HttpConnector>);

impl Observer {
    fn new(config: &S3Config) -> Self {
        Self(config.connector.clone().unwrap_or_else(|| Arc::new(ReqwestConnector::default())))
    }
}

impl HttpConnector for Observer {
    fn connect(&self, options: &ClientOptions) -> object_store::Result<HttpClient> {
        Ok(HttpClient::new(Observed(self.0.connect(options)?)))
    }
}

#[derive(Debug)]
struct Observed(HttpClient);

#[async_trait]
impl HttpService for Observed {
    async fn call(&self, request: HttpRequest) -> Result<HttpResponse, HttpError> {
        let mut response = self.0.execute(request).await?;
        let name = response.headers().get("server").map(|name| String::from_utf8_lossy(name.as_bytes()));
        if let Some(name) = name.map(|name| ServerName(name.into_owned())) {
            response.extensions_mut().insert(name);
        }
        if let Some(time) = response.headers().get("date").and_then(|date| ServerTime::parse(date.as_bytes()))
        {
            response.extensions_mut().insert(time);
        }
        Ok(response)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dates_of_http_are_parsed_and_others_ignored() {
        let time = Timestamp::from_micros(1_771_151_400_000_000);
        assert_eq!(ServerTime::parse(b"Sun, 15 Feb 2026 10:30:00 GMT"), Some(ServerTime(time)));
        for other in [
            "",
            "2026-02-15T10:30:00Z",
            "Sun Feb 15 10:30:00 2026",
            "Mon, 15 Feb 2026 10:30:00 GMT",
            "\u{e4}",
        ] {
            assert_eq!(ServerTime::parse(other.as_bytes()), None, "{other}");
        }
        assert_eq!(ServerTime::parse(&[0xff]), None);
    }
}
