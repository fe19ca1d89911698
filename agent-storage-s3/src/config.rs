//! Location of the bucket and options of a store.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use agent_core::clock::Effects;
use agent_core::setters;
use agent_core::store::{Registry, percent_decode};
use agent_core::{Error, Result};
use object_store::client::HttpConnector;
use url::Url;

use crate::dialect::{Credentials, Dialect};
use crate::layout::fields::IndexedField;
use crate::layout::settings::Wanted;

/// Options of an [`S3Store`](crate::S3Store): a bucket of S3 or of a server that speaks its protocol (`s3://`), of
/// Google Cloud Storage (`gs://`, feature `gcs`), or a container of Azure Blob Storage (`az://`, feature `azure`).
///
/// The environment is read first, as users of `object_store` expect (`AWS_ACCESS_KEY_ID`, `AWS_REGION`,
/// `AWS_ENDPOINT_URL`, `AWS_ALLOW_HTTP` and the others; `GOOGLE_…`, `AZURE_…`). The address and the options given here
/// override it. If neither has credentials, opening fails at once. The metadata service of the machine is asked for
/// them only with the option `credentials=instance`.
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
    pub(crate) dialect: Dialect,
    pub(crate) options: Vec<(String, String)>,
    pub(crate) credentials: Credentials,
    pub(crate) connector: Option<Arc<dyn HttpConnector>>,
    pub(crate) deadline: Duration,
    pub(crate) attempt: Duration,
    pub(crate) concurrency: usize,
    pub(crate) effects: Effects,
    pub(crate) create: bool,
    pub(crate) wanted: Wanted,
}

impl S3Config {
    /// Default time for which an operation is tried before it fails with `Unavailable`: 60 seconds.
    pub const DEFAULT_DEADLINE: Duration = Duration::from_secs(60);
    /// Default time limit of one request, for each started MiB that it sends or may receive: 10 seconds.
    pub const DEFAULT_ATTEMPT: Duration = Duration::from_secs(10);
    /// Default limit on concurrent requests: 32.
    pub const DEFAULT_CONCURRENCY: usize = 32;

    /// Longest time for which an operation is tried: a day.
    pub const MAX_DEADLINE: Duration = Duration::from_secs(24 * 3600);
    /// Longest time limit of one request, for each started MiB: an hour.
    pub const MAX_ATTEMPT: Duration = Duration::from_secs(3600);
    /// Largest limit on concurrent requests.
    pub const MAX_CONCURRENCY: usize = 1000;

    /// Returns options for a store in an existing bucket of S3. For the other kinds see [`from_url`](Self::from_url).
    ///
    /// ```
    /// use std::time::Duration;
    /// use agent_storage_s3::S3Config;
    ///
    /// let config = S3Config::new("my-bucket")
    ///     .with_prefix("agents/production")?
    ///     .with_option("region", "eu-central-1")?
    ///     .with_deadline(Duration::from_secs(30))
    ///     .with_attempt(Duration::from_secs(5))
    ///     .with_concurrency(16)
    ///     .with_create(false);
    /// assert_eq!((config.bucket(), config.prefix()), ("my-bucket", "agents/production"));
    /// assert_eq!(config.to_string(), "s3://my-bucket/agents/production");
    /// # Ok::<(), agent_core::Error>(())
    /// ```
    pub fn new(bucket: impl Into<String>) -> Self {
        Self {
            bucket: bucket.into(),
            prefix: String::new(),
            dialect: Dialect::S3,
            options: Vec::new(),
            credentials: Credentials::default(),
            connector: None,
            deadline: Self::DEFAULT_DEADLINE,
            attempt: Self::DEFAULT_ATTEMPT,
            concurrency: Self::DEFAULT_CONCURRENCY,
            effects: Effects::default(),
            create: true,
            wanted: Wanted::default(),
        }
    }

    /// Parses options from a URL: `s3://BUCKET[/PREFIX][?OPTION=VALUE&…]`, or the same with `gs` or `az` and a
    /// container. In the path and in values, `%` and two hexadecimal digits stand for a byte.
    ///
    /// # Errors
    ///
    /// `InvalidInput` if the text is not such a URL, or names an unknown option; the text says which part is wrong.
    /// `Unsupported` if the program was built without the kind of server.
    ///
    /// ```
    /// use agent_storage_s3::S3Config;
    ///
    /// let config = S3Config::from_url("s3://my-bucket/agents?endpoint=http://localhost:9000&allow_http=true")?;
    /// assert_eq!(config.bucket(), "my-bucket");
    /// assert!(S3Config::from_url("https://my-bucket.example.com").is_err());
    /// # Ok::<(), agent_core::Error>(())
    /// ```
    pub fn from_url(url: &str) -> Result<Self> {
        // No text quotes the address: it may hold a secret.
        let parsed = Url::parse(url).ok();
        let dialect = parsed
            .as_ref()
            .and_then(|parsed| Dialect::ALL.into_iter().find(|dialect| parsed.scheme() == dialect.scheme()));
        let (Some(parsed), Some(dialect)) = (parsed, dialect) else {
            return Err(Error::invalid(
                "this is no address of a bucket; write s3://BUCKET/PREFIX?OPTION=VALUE, gs://BUCKET/PREFIX or \
                 az://CONTAINER/PREFIX",
            ));
        };
        if let Some(missing) = dialect.missing() {
            return Err(Error::unsupported(missing));
        }
        let (bucket, syntax) = (dialect.bucket(), dialect.syntax());
        if !parsed.username().is_empty() || parsed.password().is_some() {
            return Err(Error::invalid(format!(
                "the address has a user before its {bucket}; write {syntax}, and put credentials into the environment"
            )));
        }
        if parsed.port().is_some() {
            return Err(Error::invalid(format!(
                "the address has a port after its {bucket}; write {syntax}, and name the server by the option endpoint"
            )));
        }
        if parsed.fragment().is_some() {
            return Err(Error::invalid(
                "the address has a part after #; write %23 if the character is meant",
            ));
        }
        let name = percent_decode(parsed.host_str().unwrap_or_default())?;
        if name.is_empty() {
            return Err(Error::invalid(format!(
                "the address names no {bucket}; write {syntax}?OPTION=VALUE"
            )));
        }
        // What the parser drops or changes without a word, such as `..` and line breaks, was hardly meant.
        if parsed.as_str() != url {
            return Err(Error::invalid(
                "the address has a part . or .., or a character that an address does not have; write % and two \
                 hexadecimal digits for such a character",
            ));
        }
        let mut config = Self::new(name).with_prefix(percent_decode(parsed.path())?)?;
        config.dialect = dialect;
        // Not as in forms: in a secret `+` is a plus.
        for option in parsed.query().unwrap_or_default().split('&').filter(|option| !option.is_empty()) {
            let (name, value) = option.split_once('=').unwrap_or((option, ""));
            config = config.with_option(&percent_decode(name)?, &percent_decode(value)?)?;
        }
        Ok(config)
    }

    /// Registers the addresses `s3://BUCKET/PREFIX` in the registry, and those of the features `gcs` and `azure`.
    ///
    /// ```
    /// use agent_core::store::Registry;
    /// use agent_storage_s3::S3Config;
    ///
    /// let mut registry = Registry::new();
    /// S3Config::register(&mut registry);
    /// let config = registry.parse("s3://my-bucket/agents?secret_access_key=hidden")?;
    /// assert_eq!(config.to_string(), "s3://my-bucket/agents");
    /// # Ok::<(), agent_core::Error>(())
    /// ```
    pub fn register(registry: &mut Registry) {
        for dialect in Dialect::ALL {
            match dialect.missing() {
                None => registry.register(dialect.scheme(), dialect.syntax(), Self::from_url),
                Some(missing) => registry.register_missing(dialect.scheme(), missing),
            }
        }
    }

    /// Sets the key prefix, a folder in the bucket that contains all of the store's objects. Default: empty, the whole
    /// bucket.
    ///
    /// # Errors
    ///
    /// `InvalidInput` if the prefix has an empty part, `.` or `..`, or characters other than letters, digits and
    /// `-_.=/`.
    ///
    /// ```
    /// use agent_storage_s3::S3Config;
    ///
    /// assert_eq!(S3Config::new("my-bucket").with_prefix("/agents/")?.prefix(), "agents");
    /// assert!(S3Config::new("my-bucket").with_prefix("../agents").is_err());
    /// # Ok::<(), agent_core::Error>(())
    /// ```
    pub fn with_prefix(mut self, prefix: impl Into<String>) -> Result<Self> {
        let prefix = prefix.into();
        let prefix = prefix.trim_matches('/');
        let plain = |c: char| c.is_ascii_alphanumeric() || "-_.=".contains(c);
        let part = |part: &str| !matches!(part, "" | "." | "..") && part.chars().all(plain);
        let fits = prefix.is_empty() || (prefix.len() <= 512 && prefix.split('/').all(part));
        if !fits {
            return Err(Error::invalid(
                "the prefix must be parts of letters, digits and -_.= with single slashes between",
            ));
        }
        prefix.clone_into(&mut self.prefix);
        Ok(self)
    }

    /// Sets an option by its name in a URL: of this store (`deadline_ms`, `attempt_ms`, `concurrency`, `create`,
    /// `credentials`, `index`), or of `object_store`'s client of the kind (`AmazonS3`, `GoogleCloudStorage`, `MicrosoftAzure`).
    ///
    /// `credentials` is `environment`, the default, or `instance`: if the environment has none, ask the metadata
    /// service of the machine.
    ///
    /// # Errors
    ///
    /// `InvalidInput` if the option is unknown or its value is invalid.
    ///
    /// ```
    /// use agent_storage_s3::S3Config;
    ///
    /// let config = S3Config::new("my-bucket").with_option("deadline_ms", "30000")?;
    /// let error = config.with_option("regoin", "eu-central-1").unwrap_err();
    /// assert!(error.to_string().starts_with("unknown option \"regoin\""));
    /// # Ok::<(), agent_core::Error>(())
    /// ```
    pub fn with_option(mut self, name: &str, value: &str) -> Result<Self> {
        let number = |most: u128| {
            let number = value.parse::<u64>().ok().filter(|number| (1..=most).contains(&u128::from(*number)));
            number.ok_or_else(|| Error::invalid(format!("the value of {name} is no number from 1 to {most}")))
        };
        let millis = |most: Duration| number(most.as_millis()).map(Duration::from_millis);
        match name {
            "deadline_ms" => Ok(self.with_deadline(millis(Self::MAX_DEADLINE)?)),
            "attempt_ms" => Ok(self.with_attempt(millis(Self::MAX_ATTEMPT)?)),
            "create" => match value {
                "true" => Ok(self.with_create(true)),
                "false" => Ok(self.with_create(false)),
                _ => Err(Error::invalid("the value of create is true or false")),
            },
            "index" => self.with_index(IndexedField::parse_all(value)?),
            "credentials" => {
                self.credentials = match value {
                    "environment" => Credentials::Environment,
                    "instance" => Credentials::Instance,
                    _ => return Err(Error::invalid("the value of credentials is environment or instance")),
                };
                Ok(self)
            }
            "concurrency" => {
                let requests = number(Self::MAX_CONCURRENCY as u128)?;
                Ok(self.with_concurrency(usize::try_from(requests).unwrap_or(Self::MAX_CONCURRENCY)))
            }
            _ => {
                self.dialect.check_option(name)?;
                self.options.push((name.to_owned(), value.to_owned()));
                Ok(self)
            }
        }
    }

    setters! {
        /// Sets how long an operation is tried before it fails with `Unavailable`. Default: 60 seconds. At most
        /// [`MAX_DEADLINE`](Self::MAX_DEADLINE), to which a longer time is reduced.
        pub fn with_deadline(deadline: Duration) => deadline = deadline.min(Self::MAX_DEADLINE);

        /// Sets the time limit of one request, for each started MiB that it sends or may receive. A request that takes
        /// longer is abandoned and sent again. Default: 10 seconds. At most [`MAX_ATTEMPT`](Self::MAX_ATTEMPT), to which a
        /// longer time is reduced.
        pub fn with_attempt(attempt: Duration) => attempt = attempt.min(Self::MAX_ATTEMPT);

        /// Sets the limit on concurrent requests. Default: 32. From 1 to [`MAX_CONCURRENCY`](Self::MAX_CONCURRENCY), into
        /// which other values are moved.
        pub fn with_concurrency(requests: usize) => concurrency = requests.clamp(1, Self::MAX_CONCURRENCY);

        /// Sets whether the store is created if it does not exist. Default: `true`. With `false`, [`open`](Self::open)
        /// fails with `NotFound` if no store was ever opened under the prefix, so that a mistyped address is not mistaken
        /// for an empty store.
        pub fn with_create(create: bool) => create = create;
    }

    /// Sets the fields of sessions that have an index of their own; in an address, `?index=creator,label.project`. Default:
    /// none.
    ///
    /// A list of sessions by an indexed field reads the sessions that have the value; by any other label, or by creator, it
    /// reads all of the workspace or tenant. If a query names several indexed fields, it goes by the one that stands first
    /// here, so name those first whose values have the fewest sessions. Each field costs a request (PUT) when a session that
    /// has it is created, when its value changes, when the session is archived, restored or deleted, and with the first
    /// commit after 15 minutes at rest.
    ///
    /// The first store under a prefix stores the fields there. All later ones use what is stored: opening one with other
    /// fields, or in another order, fails with `InvalidInput`. They cannot be changed; copy the data to another prefix instead.
    ///
    /// # Errors
    ///
    /// `InvalidInput` for more than 8 fields, for one that is named twice, and for a key that no label can have or that
    /// contains a comma.
    ///
    /// ```
    /// use agent_storage_s3::{IndexedField, S3Config};
    ///
    /// let fields = [IndexedField::Label("project".to_owned()), IndexedField::Creator];
    /// let config = S3Config::new("my-bucket").with_index(fields)?;
    /// let same = S3Config::from_url("s3://my-bucket?index=label.project,creator")?;
    /// assert!(S3Config::from_url("s3://my-bucket?index=project").is_err());
    /// # Ok::<(), agent_core::Error>(())
    /// ```
    pub fn with_index(mut self, fields: impl IntoIterator<Item = IndexedField>) -> Result<Self> {
        let fields: Vec<_> = fields.into_iter().collect();
        IndexedField::check(&fields)?;
        self.wanted.index = Some(fields);
        Ok(self)
    }

    setters! {
        /// Sets the source of randomness of the store itself. Default: that of the system.
        /// Those of sessions, their times and ids, are set by [`Storage::with_effects`](agent_core::Storage::with_effects).
        pub fn with_effects(effects: Effects) => effects = effects;

        /// Sets the HTTP client that sends the requests: a simulated server, a proxy, an instrumented client. Default: that
        /// of `object_store`.
        pub fn with_http_connector(connector: impl HttpConnector) => connector = Some(Arc::new(connector));
    }

    /// Returns the name of the bucket.
    pub fn bucket(&self) -> &str {
        &self.bucket
    }

    /// Returns the key prefix in the bucket; empty if the store uses the whole bucket.
    pub fn prefix(&self) -> &str {
        &self.prefix
    }
}

impl fmt::Debug for S3Config {
    /// Formats the options without their values, which include secrets.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("S3Config")
            .field("dialect", &self.dialect)
            .field("bucket", &self.bucket)
            .field("prefix", &self.prefix)
            .field("options", &self.options.iter().map(|(key, _)| key).collect::<Vec<_>>())
            .field("deadline", &self.deadline)
            .finish_non_exhaustive()
    }
}

impl fmt::Display for S3Config {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}://{}/{}", self.dialect.scheme(), self.bucket, self.prefix)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use agent_core::ErrorKind;

    #[test]
    fn errors_do_not_repeat_a_long_address() {
        for option in ["x".repeat(5000), format!("index={}", "x".repeat(5000))] {
            let error = S3Config::from_url(&format!("s3://bucket?{option}")).unwrap_err().to_string();
            assert!(error.len() < 500, "a quotation is cut: {error}");
        }
    }

    /// A value of an address that is out of its range is refused by name, and the largest one is taken. The setters
    /// reduce it, as documented.
    #[test]
    fn values_out_of_range_are_refused() {
        for (option, expected) in [
            ("deadline_ms=86400001", "the value of deadline_ms is no number from 1 to 86400000"),
            ("deadline_ms=0", "the value of deadline_ms is no number from 1 to 86400000"),
            ("attempt_ms=3600001", "the value of attempt_ms is no number from 1 to 3600000"),
            ("attempt_ms=soon", "the value of attempt_ms is no number from 1 to 3600000"),
            ("concurrency=1001", "the value of concurrency is no number from 1 to 1000"),
        ] {
            let error = S3Config::from_url(&format!("s3://bucket?{option}")).unwrap_err();
            assert_eq!(*error.kind(), ErrorKind::InvalidInput, "{option}");
            assert!(error.to_string().contains(expected), "{error}");
        }
        let most = "s3://bucket?deadline_ms=86400000&attempt_ms=3600000&concurrency=1000";
        let most = S3Config::from_url(most).unwrap();
        let more = S3Config::new("bucket").with_deadline(Duration::MAX).with_attempt(Duration::MAX);
        for config in [&most, &more] {
            assert_eq!((config.deadline, config.attempt), (S3Config::MAX_DEADLINE, S3Config::MAX_ATTEMPT));
        }
        assert_eq!(most.concurrency, S3Config::MAX_CONCURRENCY);
    }
}
