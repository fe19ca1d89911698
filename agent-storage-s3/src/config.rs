//! Where the bucket lies and how the store behaves.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use agent_core::clock::Effects;
use agent_core::store::{Registry, decoded, parts};
use agent_core::{Error, ErrorKind, Result};
use object_store::aws::{AmazonS3, AmazonS3Builder, AmazonS3ConfigKey};
use object_store::client::{HttpClient, HttpConnector};
use object_store::{ClientConfigKey, ClientOptions, RetryConfig};

/// Options of an [`S3Store`](crate::S3Store).
///
/// What the environment says is the base, as users of `object_store` expect (`AWS_ACCESS_KEY_ID`, `AWS_REGION`,
/// `AWS_ENDPOINT_URL`, `AWS_ALLOW_HTTP` and the others); the address and the options given here come on top.
///
/// ```
/// use agent_storage_s3::S3Config;
///
/// let config = S3Config::from_url("s3://my-bucket/agents?region=eu-central-1&deadline_ms=30000")?;
/// assert_eq!((config.bucket(), config.prefix()), ("my-bucket", "agents"));
/// let error = S3Config::from_url("s3://my-bucket?regoin=eu-central-1").unwrap_err();
/// assert!(error.to_string().contains("regoin"));
/// # Ok::<(), agent_core::Error>(())
/// ```
#[derive(Clone)]
pub struct S3Config {
    bucket: String,
    prefix: String,
    options: Vec<(AmazonS3ConfigKey, String)>,
    connector: Option<Connector>,
    pub(crate) deadline: Duration,
    pub(crate) attempt: Duration,
    pub(crate) concurrency: usize,
    pub(crate) effects: Effects,
    pub(crate) create: bool,
}

impl S3Config {
    /// How long an operation is tried before it fails with `Unavailable`, unless set.
    pub const DEFAULT_DEADLINE: Duration = Duration::from_secs(60);
    /// How long one request may take, for each started MiB that it sends or may get, unless set.
    pub const DEFAULT_ATTEMPT: Duration = Duration::from_secs(10);
    /// How many requests may be under way at once, unless set.
    pub const DEFAULT_CONCURRENCY: usize = 32;

    const OPTIONS: &'static str = "deadline_ms, attempt_ms, concurrency, create, and those of object_store's AmazonS3 \
        (region, endpoint, access_key_id, secret_access_key, session_token, allow_http, virtual_hosted_style_request, \
        ...)";

    /// A store in a bucket that is there already.
    pub fn new(bucket: impl Into<String>) -> Self {
        Self {
            bucket: bucket.into(),
            prefix: String::new(),
            options: Vec::new(),
            connector: None,
            deadline: Self::DEFAULT_DEADLINE,
            attempt: Self::DEFAULT_ATTEMPT,
            concurrency: Self::DEFAULT_CONCURRENCY,
            effects: Effects::default(),
            create: true,
        }
    }

    /// Options from a URL: `s3://BUCKET[/PREFIX][?OPTION=VALUE&…]`. In values, `%` and two hexadecimal digits stand for
    /// a byte.
    ///
    /// # Errors
    ///
    /// `InvalidInput` where it is no such URL, or names an option that there is not.
    pub fn from_url(url: &str) -> Result<Self> {
        let rest = url.strip_prefix("s3://").ok_or_else(|| {
            // The whole URL may hold a secret.
            invalid("this is no address of an S3 store; write s3://BUCKET/PREFIX?OPTION=VALUE")
        })?;
        let (place, options) = parts(rest)?;
        let (bucket, prefix) = place.split_once('/').unwrap_or((place, ""));
        let mut config = Self::new(decoded(bucket)?).with_prefix(decoded(prefix)?)?;
        if config.bucket.is_empty() {
            return Err(invalid("the address names no bucket; write s3://BUCKET/PREFIX?OPTION=VALUE"));
        }
        for (name, value) in options {
            config = config.with_option(&name, &value)?;
        }
        Ok(config)
    }

    /// Makes `s3://BUCKET/PREFIX` known.
    pub fn register(registry: &mut Registry) {
        registry.register("s3", "s3://BUCKET/PREFIX", Self::from_url);
    }

    /// Sets the folder in the bucket below which everything lies.
    ///
    /// # Errors
    ///
    /// `InvalidInput` where it holds an empty part, `.` or `..`, or characters other than letters, digits and `-_.=/`.
    pub fn with_prefix(mut self, prefix: impl Into<String>) -> Result<Self> {
        let prefix = prefix.into();
        let prefix = prefix.trim_matches('/');
        let plain = |c: char| c.is_ascii_alphanumeric() || "-_.=".contains(c);
        let part = |part: &str| !matches!(part, "" | "." | "..") && part.chars().all(plain);
        let fits = prefix.is_empty() || (prefix.len() <= 512 && prefix.split('/').all(part));
        if !fits {
            return Err(invalid(
                "the prefix must be parts of letters, digits and -_.= with single slashes between",
            ));
        }
        prefix.clone_into(&mut self.prefix);
        Ok(self)
    }

    /// Sets an option by its name in a URL: of this store (`deadline_ms`, `attempt_ms`, `concurrency`, `create`), or of
    /// `object_store`'s `AmazonS3`.
    ///
    /// # Errors
    ///
    /// `InvalidInput` where there is no such option, or the value is none of its.
    pub fn with_option(mut self, name: &str, value: &str) -> Result<Self> {
        let number = || {
            let number = value.parse::<u32>().ok().filter(|number| *number > 0);
            number.ok_or_else(|| invalid(format!("the value of {name} is no number above zero")))
        };
        let millis = || number().map(|millis| Duration::from_millis(u64::from(millis)));
        match name {
            "deadline_ms" => Ok(self.with_deadline(millis()?)),
            "attempt_ms" => Ok(self.with_attempt(millis()?)),
            "create" => match value {
                "true" => Ok(self.with_create(true)),
                "false" => Ok(self.with_create(false)),
                _ => Err(invalid("the value of create is true or false")),
            },
            "concurrency" => Ok(self.with_concurrency(usize::try_from(number()?).unwrap_or(1))),
            _ => {
                let key = name.parse::<AmazonS3ConfigKey>().ok();
                let key = key.filter(|key| !matches!(key, AmazonS3ConfigKey::Bucket)).ok_or_else(|| {
                    invalid(format!("there is no option {name:?}; known are {}", Self::OPTIONS))
                })?;
                self.options.push((key, value.to_owned()));
                Ok(self)
            }
        }
    }

    /// Sets how long an operation is tried before it fails with `Unavailable`.
    #[must_use]
    pub fn with_deadline(mut self, deadline: Duration) -> Self {
        self.deadline = deadline.min(Duration::from_secs(24 * 3600));
        self
    }

    /// Sets how long one request may take, for each started MiB that it sends or may get. What comes later is no
    /// longer waited for; the request is sent again.
    #[must_use]
    pub fn with_attempt(mut self, attempt: Duration) -> Self {
        self.attempt = attempt.min(Duration::from_secs(3600));
        self
    }

    /// Sets how many requests may be under way at once; at least one.
    #[must_use]
    pub fn with_concurrency(mut self, requests: usize) -> Self {
        self.concurrency = requests.clamp(1, 1000);
        self
    }

    /// Sets whether a store is made if there is none; it is, unless set to `false`. Then [`open`](Self::open) fails with
    /// `NotFound` if nothing lies below the prefix, so that a mistyped address is not taken for an empty store.
    #[must_use]
    pub fn with_create(mut self, create: bool) -> Self {
        self.create = create;
        self
    }

    /// Sets where randomness comes from.
    #[must_use]
    pub fn with_effects(mut self, effects: Effects) -> Self {
        self.effects = effects;
        self
    }

    /// Sends the requests through a client of the caller's: a simulated server, a proxy, an instrumented client.
    #[must_use]
    pub fn with_http_connector(mut self, connector: impl HttpConnector) -> Self {
        self.connector = Some(Connector(Arc::new(connector)));
        self
    }

    /// The bucket.
    pub fn bucket(&self) -> &str {
        &self.bucket
    }

    /// The folder in it; empty where it is the bucket itself.
    pub fn prefix(&self) -> &str {
        &self.prefix
    }

    /// The client. It never tries again by itself: whether that is safe only the protocol knows.
    pub(crate) fn client(&self) -> Result<AmazonS3> {
        // How long a request may take is ours to say: it depends on its size.
        let timeout = AmazonS3ConfigKey::Client(ClientConfigKey::Timeout);
        let mut builder = AmazonS3Builder::from_env()
            .with_config(timeout, "1day")
            .with_config(AmazonS3ConfigKey::DisableBulkDelete, "true");
        for (key, value) in &self.options {
            builder = builder.with_config(*key, value);
        }
        let retry = RetryConfig { max_retries: 0, ..RetryConfig::default() };
        builder = builder.with_bucket_name(&self.bucket).with_retry(retry);
        if let Some(connector) = &self.connector {
            builder = builder.with_http_connector(connector.clone());
        }
        builder
            .build()
            .map_err(|source| invalid("the options of the S3 store do not fit together").with_source(source))
    }
}

impl fmt::Debug for S3Config {
    /// Without the values of options, among which there are secrets.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("S3Config")
            .field("bucket", &self.bucket)
            .field("prefix", &self.prefix)
            .field("options", &self.options.iter().map(|(key, _)| key).collect::<Vec<_>>())
            .field("deadline", &self.deadline)
            .finish_non_exhaustive()
    }
}

impl fmt::Display for S3Config {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "s3://{}/{}", self.bucket, self.prefix)
    }
}

#[derive(Clone, Debug)]
struct Connector(Arc<dyn HttpConnector>);

impl HttpConnector for Connector {
    fn connect(&self, options: &ClientOptions) -> object_store::Result<HttpClient> {
        self.0.connect(options)
    }
}

fn invalid(message: impl Into<String>) -> Error {
    Error::new(ErrorKind::InvalidInput, message)
}
